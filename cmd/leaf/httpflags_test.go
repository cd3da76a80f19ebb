package main

import (
	"strings"
	"testing"
)

// The advice is the command that was given, but for the address, what the environment has, and what is secret.
func TestHTTPAdvice(t *testing.T) {
	t.Setenv("LEAF_NODE", "from_env")
	cmd := newServeCmd()
	cmd.Flags().String("config", "", "")
	args := []string{
		"--tag", "order", "--tag", "a b:5", "--http", "127.0.0.1:8080", "--data-dir", "it's", "--http-token", "hunter2",
		"-s", "nats://alice:hunter2@h:4222", "--mysql", "u:hunter2@tcp(h)/d",
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if err := applyEnvironment(cmd.Flags()); err != nil {
		t.Fatal(err)
	}
	advice := httpAdvice(cmd.Flags())
	want := `leaf serve --data-dir='it'\''s' --http-token=... --mysql=... --server=... --tag=order --tag='a b:5' --http=`
	for _, ending := range []string{"127.0.0.1:0\n", "''"} {
		if !strings.Contains(advice, want+ending) {
			t.Errorf("the advice is %s, want %s", advice, want+ending)
		}
	}
	if strings.Contains(advice, "hunter2") {
		t.Errorf("the advice shows a secret: %s", advice)
	}
}

func TestHTTPFlags(t *testing.T) {
	for name, c := range map[string]struct {
		flags httpFlags
		say   string // empty: it is good
	}{
		"off":                  {httpFlags{}, ""},
		"default":              {httpFlags{addr: "127.0.0.1:8080"}, ""},
		"IPv6":                 {httpFlags{addr: "[::1]:0"}, ""},
		"by name":              {httpFlags{addr: "localhost:8080"}, ""},
		"elsewhere":            {httpFlags{addr: "10.0.0.1:8080"}, "open to the network"},
		"with a token":         {httpFlags{addr: "0.0.0.0:8080", token: "t"}, ""},
		"with TLS":             {httpFlags{addr: ":8443", tlsCert: "c", tlsKey: "k"}, ""},
		"token of white space": {httpFlags{addr: "0.0.0.0:8080", token: " "}, "--http-token"},
		"token of two lines":   {httpFlags{addr: "0.0.0.0:8080", token: "a\nb"}, "--http-token"},
		"token beyond ASCII":   {httpFlags{addr: "127.0.0.1:0", token: "ä"}, "--http-token"},
		"key alone":            {httpFlags{addr: "127.0.0.1:0", tlsKey: "k"}, "--http-tlscert"},
		"port without a host":  {httpFlags{addr: ":8080"}, "open to the network"},
		"host without a port":  {httpFlags{addr: "127.0.0.1"}, "HOST:PORT"},
		"a port that is none":  {httpFlags{addr: "127.0.0.1:-1"}, "65535"},
		"a URL":                {httpFlags{addr: "http://127.0.0.1:8080"}, "HOST:PORT"},
	} {
		err := c.flags.check()
		if (err == nil) != (c.say == "") || err != nil && (!strings.Contains(err.Error(), c.say)) {
			t.Errorf("%s: %v, want %q", name, err, c.say)
		}
	}
}
