package gateway

import (
	"errors"
	"strings"
	"testing"
)

// /healthz fails only where a restart of the process helps, and says nothing of the cause: it
// asks for no token.
func TestHealthz(t *testing.T) {
	t.Parallel()
	var dead error
	s := serve(t, &fakeGenerator{}, func(c *Config) { c.Dead = func() error { return dead } })
	for _, c := range []struct {
		dead   error
		status int
		body   string
	}{{nil, 200, "ok"}, {errors.New("secret"), 503, "only a restart of this process helps"}, {nil, 200, "ok"}} {
		dead = c.dead
		if w := get(s, "/healthz"); w.Code != c.status || strings.TrimSpace(w.Body.String()) != c.body {
			t.Errorf("%v: %d %q, want %d %q", c.dead, w.Code, w.Body, c.status, c.body)
		}
	}
}
