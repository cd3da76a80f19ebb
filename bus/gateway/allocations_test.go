package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/leafbus/leafbus/bus"
)

// prepared gives the same range again and again, without an allocation.
type prepared struct {
	fakeGenerator
	ranges []bus.Range
}

func (g *prepared) Take(context.Context, string, int64) ([]bus.Range, error) { return g.ranges, nil }
func (g *prepared) Snowflakes(context.Context, int64) ([]bus.Range, error)   { return g.ranges, nil }

// discarding is an answer that nobody reads.
type discarding struct{ header http.Header }

func (w *discarding) Header() http.Header         { return w.header }
func (w *discarding) Write(b []byte) (int, error) { return len(b), nil }
func (w *discarding) WriteHeader(int)             {}

// A request for one ID allocates only the body of its answer, besides what net/http and the generator need.
func TestAllocations(t *testing.T) {
	g := &prepared{ranges: []bus.Range{{First: 1 << 52, Last: 1 << 52}}}
	open := serve(t, g)
	secret := serve(t, g, func(c *Config) { c.Token = "secret" })
	for name, c := range map[string]struct {
		server *Server
		path   string
		change []func(*http.Request)
		most   float64
	}{
		"segment":             {open, "/api/segment/get/order", nil, 1},
		"snowflake":           {open, "/api/snowflake/get/order", nil, 1},
		"as curl asks":        {open, "/api/segment/get/order", []func(*http.Request){header("Accept", "*/*"), header("User-Agent", "curl/8.5.0")}, 1},
		"at another address":  {open, "/api/segment/get/order", []func(*http.Request){func(r *http.Request) { r.Host = "10.1.2.3:8080" }}, 1},
		"with a bearer token": {secret, "/api/segment/get/order", []func(*http.Request){header("Authorization", "Bearer secret")}, 1},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:80"+c.path, nil)
		for _, f := range c.change {
			f(r)
		}
		w := &discarding{make(http.Header)}
		n := testing.AllocsPerRun(1000, func() {
			clear(w.header)
			c.server.ServeHTTP(w, r)
		})
		if n > c.most || w.header.Get("Leaf-Error") != "" || w.header.Get("Cache-Control") == "" {
			t.Errorf("%s: %v allocations, want at most %v; the answer has %v", name, n, c.most, w.header)
		}
	}
}
