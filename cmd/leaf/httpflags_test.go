package main

import (
	"strings"
	"testing"
)

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
