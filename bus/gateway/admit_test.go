package gateway

import (
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus/admin"
)

func TestHost(t *testing.T) {
	t.Parallel()
	open := serve(t, &fakeGenerator{initialised: true})
	hosts := map[string]bool{
		"127.0.0.1": true, "127.0.0.1:8080": true, "[::1]:8080": true, "[::1]": true, "localhost:8080": true, "LocalHost": true,
		"leaf.localhost:1": true, "10.1.2.3": true, "": true,
		"evil.example": false, "evil.example:8080": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false, "notlocalhost": false,
	}
	for host, ok := range hosts {
		w := get(open, "/api/segment/get/order", func(r *http.Request) { r.Host = host })
		if ok && w.Code != 200 || !ok && (w.Code != 421 || !strings.Contains(w.Body.String(), "--http-token")) {
			t.Errorf("%q: %d %s", host, w.Code, w.Body)
		}
	}
	for name, s := range map[string]*Server{
		"token": serve(t, &fakeGenerator{initialised: true}, func(c *Config) { c.Tokens = tokens("secret", "") }),
		"TLS":   serve(t, &fakeGenerator{initialised: true}, func(c *Config) { c.TLS = &tls.Config{} }),
	} {
		for host := range hosts {
			w := get(s, "/api/segment/get/order", header("Authorization", "Bearer secret"), func(r *http.Request) { r.Host = host })
			if w.Code != 200 {
				t.Errorf("with %s, %q: %d %s", name, host, w.Code, w.Body)
			}
		}
	}
}

// The paths that callers may ask for, and those of operators.
var (
	callersPaths = []string{
		"/api/segment/get/order", "/api/snowflake/get/any", "/v1/segments/order", "/v1/snowflakes",
		"/decodeSnowflakeId?snowflakeId=1",
	}
	operatorsPaths = []string{"/", "/dashboard/app.js", "/dashboard/overview", "/metrics", "/cache", "/db", "/nothing"}
)

// tokens are valid tokens: two of callers, and one of operators. An empty one is none.
func tokens(caller, operator string) func() Tokens {
	var t Tokens
	if caller != "" {
		t.Callers = []string{"old-" + caller, caller}
	}
	if operator != "" {
		t.Operators = []string{operator}
	}
	return func() Tokens { return t }
}

func TestTokens(t *testing.T) {
	t.Parallel()
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	network := func(c *Config) { c.Listener, c.TLS = everywhere{}, &tls.Config{} }
	const caller, operator = "secret:k9", "other:k9"
	wrong := []string{
		"", "Bearer", "Bearer ", "Bearer secret", "Bearer secret:k9s", "bearer", "secret:k9", "other:k9",
		basic("leaf:secret"), basic("secret:k9"), "Basic !", "Digest x",
	}
	callers := []string{
		"Bearer secret:k9", "bearer secret:k9", "BEARER secret:k9", basic(":secret:k9"), basic("leaf:secret:k9"),
		"Bearer old-secret:k9",
	}
	operators := []string{"Bearer other:k9", basic("me:other:k9")}
	for name, c := range map[string]struct {
		caller, operator string
		change           func(*Config)
		shown            []string
		ids, pages       int // the status; 200 stands for all below 400 and for 404
	}{
		"no tokens":                      {shown: wrong, ids: 200, pages: 200},
		"no tokens, open to the network": {change: network, shown: wrong, ids: 200, pages: 403},
		"callers' token, wrong":          {caller: caller, shown: wrong, ids: 401, pages: 403},
		"callers' token, right":          {caller: caller, shown: callers, ids: 200, pages: 403},
		"operators' token, wrong":        {operator: operator, shown: wrong, ids: 200, pages: 401},
		"operators' token, right":        {operator: operator, shown: operators, ids: 200, pages: 200},
		"both, wrong":                    {caller: caller, operator: operator, shown: wrong, ids: 401, pages: 401},
		"both, callers'":                 {caller: caller, operator: operator, shown: callers, ids: 200, pages: 401},
		"both, operators', from the network": {
			caller: caller, operator: operator, change: network, shown: operators, ids: 200, pages: 200,
		},
	} {
		g := &fakeGenerator{
			initialised: true,
			readiness:   admin.Readiness{Missing: []string{"store"}, Reasons: map[string]string{"store": "it is at db7:3306"}},
		}
		s := serve(t, g, func(cfg *Config) {
			cfg.Tokens = tokens(c.caller, c.operator)
			if c.change != nil {
				c.change(cfg)
			}
		})
		for _, shown := range c.shown {
			for status, paths := range map[*int][]string{&c.ids: callersPaths, &c.pages: operatorsPaths} {
				for _, path := range paths {
					w := get(s, path, header("Authorization", shown))
					got := w.Code
					if got < 400 || got == 404 || got == 503 { // Leaf's pages need NATS
						got = 200
					}
					h := w.Header()
					if got != *status || (got == 401) != strings.HasPrefix(h.Get("WWW-Authenticate"), `Basic realm=`) ||
						(got == 200) != (h.Get("Connection") == "") || // who may nothing is not to hold on to a connection
						got != 200 && strings.Contains(w.Body.String(), "k9") {
						t.Errorf("%s: %s with %q: %d %v %s, want %d", name, path, shown, w.Code, h, w.Body, *status)
					}
				}
			}
			// Health needs no token, but what it says of the inside does.
			for path, status := range map[string]int{
				"/healthz": 200, "/readyz": 503, "/readyz/segment": 503, "/readyz/snowflake": 503,
			} {
				w := get(s, path, header("Authorization", shown))
				if w.Code != status || path == "/readyz" && strings.Contains(w.Body.String(), "db7") != (c.pages == 200) {
					t.Errorf("%s: %s with %q: %d %s", name, path, shown, w.Code, w.Body)
				}
			}
		}
		if c.ids != 200 && g.next != 0 {
			t.Errorf("%s: %d IDs were given without the token", name, g.next)
		}
	}
}

// everywhere is the listener of a server that other machines can reach.
type everywhere struct{ nowhere }

func (everywhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 80} }

// A page of another site can let a browser ask, and must not use up IDs by that.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true}
	s := serve(t, g)
	for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200} {
		for _, path := range callersPaths {
			if w := get(s, path, header("Sec-Fetch-Site", site)); w.Code != status {
				t.Errorf("%s from %s: %d", path, site, w.Code)
			}
		}
		if w := get(s, "/", header("Sec-Fetch-Site", site)); w.Code != 200 {
			t.Errorf("the dashboard by a link from %s: %d", site, w.Code)
		}
	}
	if g.next != 8 {
		t.Errorf("%d IDs were taken, want 8", g.next)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true}
	s := serve(t, g)
	for length, status := range map[int64]int{-1: 413, 0: 200, maxBody: 200, maxBody + 1: 413} {
		w := get(s, "/api/segment/get/order", func(r *http.Request) { r.ContentLength = length })
		if w.Code != status || status == 413 && w.Header().Get("Connection") != "close" {
			t.Errorf("a body of %d bytes: %d %v", length, w.Code, w.Header())
		}
	}
}

func TestHeadersOfPages(t *testing.T) {
	t.Parallel()
	s := serve(t, &fakeGenerator{initialised: true})
	for _, path := range []string{"/", "/dashboard/app.js", "/dashboard/style.css", "/dashboard/overview", "/metrics", "/healthz", "/nothing"} {
		h := get(s, path).Header()
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'", "X-Content-Type-Options": "nosniff",
			"X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if !strings.HasPrefix(h.Get(name), want) {
				t.Errorf("%s: %s is %q", path, name, h.Get(name))
			}
		}
		if h.Get("Cache-Control") == "" || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s: %v", path, h)
		}
	}
}
