package gateway

import (
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
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
		"token": serve(t, &fakeGenerator{initialised: true}, func(c *Config) { c.Token = "secret" }),
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

func TestToken(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true, readiness: bus.Readiness{Missing: []string{"store"}, Reasons: map[string]string{"store": "it is at db7:3306"}}}
	s := serve(t, g, func(c *Config) { c.Token = "secret:word" })
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	paths := []string{
		"/api/segment/get/order", "/api/snowflake/get/any", "/", "/dashboard/app.js", "/dashboard/overview", "/metrics",
		"/decodeSnowflakeId?snowflakeId=1",
	}
	more := append(paths, "/cache", "/nothing", "/dashboard/audit", "/dashboard/audit?tag=order",
		"/dashboard/trace?snowflake=1")
	for _, shown := range []string{"", "Bearer", "Bearer ", "Bearer secret", "Bearer secret:words", "bearer", "secret:word", basic("leaf:secret"), basic("secret:word"), "Basic !", "Digest x"} {
		for _, path := range more {
			w := get(s, path, header("Authorization", shown))
			if w.Code != 401 || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), `Basic realm=`) || strings.Contains(w.Body.String(), "secret") ||
				w.Header().Get("Connection") != "close" { // who has no token is not to hold on to a connection
				t.Errorf("%s with %q: %d %v %s", path, shown, w.Code, w.Header(), w.Body)
			}
		}
	}
	if g.next != 0 {
		t.Fatalf("%d IDs were given without the token", g.next)
	}
	for _, shown := range []string{"Bearer secret:word", "bearer secret:word", "BEARER secret:word", basic(":secret:word"), basic("leaf:secret:word")} {
		for _, path := range paths {
			if w := get(s, path, header("Authorization", shown)); w.Code != 200 || w.Header().Get("Connection") != "" {
				t.Errorf("%s with %q: %d %s", path, shown, w.Code, w.Body)
			}
		}
	}
	// Health needs none, but what it says of the inside does.
	for path, status := range map[string]int{"/healthz": 200, "/readyz": 503, "/readyz/segment": 503, "/readyz/snowflake": 503} {
		without, with := get(s, path), get(s, path, header("Authorization", "Bearer secret:word"))
		if without.Code != status || with.Code != status || without.Header().Get("Connection") != "close" {
			t.Errorf("%s: %d without the token, %d with it, want %d", path, without.Code, with.Code, status)
		}
		if path == "/readyz" && (strings.Contains(without.Body.String(), "db7") || !strings.Contains(with.Body.String(), "db7")) {
			t.Errorf("%s: %s without the token, %s with it", path, without.Body, with.Body)
		}
	}
}

// A page of another site can let a browser ask, and must not use up IDs by that.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true}
	s := serve(t, g)
	for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200} {
		for _, path := range []string{"/api/segment/get/order", "/api/snowflake/get/any"} {
			if w := get(s, path, header("Sec-Fetch-Site", site)); w.Code != status {
				t.Errorf("%s from %s: %d", path, site, w.Code)
			}
		}
		if w := get(s, "/", header("Sec-Fetch-Site", site)); w.Code != 200 {
			t.Errorf("the dashboard by a link from %s: %d", site, w.Code)
		}
		if w := get(s, "/dashboard/audit?tag=order",
			header("Sec-Fetch-Site", site)); (w.Code == 403) != (status == 403) {
			t.Errorf("an audit from %s: %d", site, w.Code)
		}
	}
	if g.next != 4 {
		t.Errorf("%d IDs were taken, want 4", g.next)
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
