package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// leaf health asks where leaf serve listens with the same settings. Only status 200 is success.
func TestHealth(t *testing.T) {
	cleanEnv(t)
	status := http.StatusOK
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" || r.Header.Get("Authorization") != "" {
			t.Errorf("asked for %s with %v", r.URL.Path, r.Header)
		}
		w.WriteHeader(status)
	})
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of a handshake that is none
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	at, port := plain.Listener.Addr().String(), plain.URL[strings.LastIndex(plain.URL, ":"):]
	for name, c := range map[string]struct {
		env, token, cert string
		answers, status  int
		say              string
	}{
		"alive":                 {env: at, answers: 200},
		"on all interhandlers":  {env: "0.0.0.0" + port, answers: 200},
		"on all of IPv6":        {env: ":" + port[1:], answers: 200},
		"with a token":          {env: at, token: "t", answers: 200},
		"over TLS":              {env: secure.Listener.Addr().String(), cert: "cert.pem", answers: 200},
		"not alive":             {env: at, answers: 500, status: exitFailed, say: "500"},
		"nobody":                {env: strings.TrimPrefix(freeAddress(t), "nats://"), status: exitNobody, say: "no generator"},
		"HTTP where TLS is":     {env: secure.Listener.Addr().String(), status: exitFailed, say: "400"},
		"off":                   {status: exitUsage, say: "--http is empty"},
		"any free port":         {env: "127.0.0.1:0", status: exitUsage, say: "--http"},
		"what is no address":    {env: "foo", status: exitUsage, say: "HOST:PORT"},
		"a port that is a word": {env: "127.0.0.1:http", status: exitUsage, say: "HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			status = c.answers
			t.Setenv("LEAF_HTTP", c.env)
			t.Setenv("LEAF_HTTP_TOKEN", c.token)
			t.Setenv("LEAF_HTTP_TLSCERT", c.cert)
			t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
			status, stdout, stderr := leaf(t, "health")
			if status != c.status || stdout != "" || !strings.Contains(stderr, c.say) {
				t.Errorf("status %d, %s%s; want %d, %q", status, stdout, stderr, c.status, c.say)
			}
		})
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
