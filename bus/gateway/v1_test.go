package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// checkProblem fails the test if an answer is not an error as RFC 9457 has it.
func checkProblem(t *testing.T, path string, w *httptest.ResponseRecorder, want problem) {
	t.Helper()
	h := w.Header()
	if w.Code != want.Status || h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("%s: %d %v %s, want %d", path, w.Code, h, w.Body, want.Status)
		return
	}
	want.Type, want.Title = "about:blank", http.StatusText(want.Status)
	got := unmarshal[problem](t, w.Body)
	if strings.Contains(got.Detail, want.Detail) {
		got.Detail = want.Detail
	}
	if got != want {
		t.Errorf("%s: %+v, want %+v", path, got, want)
	}
}

// A status means what it says, and says when to ask again.
func TestV1Errors(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true}
	s := serve(t, g)
	for reason, c := range map[bus.Reason]struct {
		code, status int
		after        time.Duration
		header       string
		ms           int64
	}{
		bus.BadTag:           {400, 400, 0, "", 0},
		bus.Paused:           {403, 403, 0, "", 0},
		bus.UnknownTag:       {404, 404, 0, "", 0},
		bus.Conflict:         {409, 409, 0, "", 0},
		bus.BatchTooLarge:    {413, 413, 0, "", 0},
		bus.QuotaExceeded:    {429, 429, 1200 * time.Millisecond, "2", 1200},
		bus.Overloaded:       {429, 503, 100 * time.Millisecond, "1", 100},
		bus.Internal:         {500, 500, 0, "", 0},
		bus.StoreUnavailable: {503, 503, 0, "1", 1000},
		bus.ClockBackwards:   {503, 503, time.Microsecond, "1", 1},
		bus.TimedOut:         {504, 504, 0, "", 0},
		bus.Exhausted:        {507, 507, 0, "", 0},
	} {
		g.err = &bus.Error{Code: c.code, Reason: reason, Message: `in "words"`, RetryAfter: c.after}
		for _, path := range []string{"/v1/segments/order", "/v1/snowflakes?count=7"} {
			w := get(s, path)
			if got := w.Header().Get("Retry-After"); got != c.header {
				t.Errorf("%s: Retry-After is %q, want %q", reason, got, c.header)
			}
			checkProblem(t, path, w, problem{Status: c.status, Detail: `in "words"`, Reason: string(reason), RetryAfterMS: c.ms})
		}
	}
	g.err = nil
	closed := serve(t, g, func(c *Config) { c.Tokens = tokens("secret", "") })
	foreign := header("Sec-Fetch-Site", "cross-site")
	host := func(r *http.Request) { r.Host = "evil.example" }
	post, body := method("POST"), func(n int64) func(*http.Request) { return func(r *http.Request) { r.ContentLength = n } }
	for _, c := range []struct {
		path           string
		w              *httptest.ResponseRecorder
		status         int
		reason, detail string
	}{
		{"no tag", get(s, "/v1/segments/"), 404, "not_found", "/v1/segments/TAG"},
		{"no path", get(s, "/v1/segments"), 404, "not_found", "not found"},
		{"another path", get(s, "/v1/snowflakes/"), 404, "not_found", "not found"},
		{"no number", get(s, "/v1/snowflakes?count=many"), 400, "bad_request", `count is "many"`},
		{"zero", get(s, "/v1/segments/order?count=0"), 400, "bad_request", `count is "0"`},
		{"two counts", get(s, "/v1/segments/order?count=1&count=2"), 400, "bad_request", "1 and 2"},
		{"a mistyped count", get(s, "/v1/snowflakes?cuont=7"), 400, "bad_request", `parameter "cuont"`},
		{"count in the body", get(s, "/v1/segments/order", post, body(13)), 400, "bad_request", "?count=100"},
		{"a large body", get(s, "/v1/segments/order", post, body(maxBody+1)), 413, "body_too_large", "no body"},
		{"another method", get(s, "/v1/snowflakes", method("PUT")), 405, "method_not_allowed", "GET, HEAD, POST"},
		{"no token", get(closed, "/v1/snowflakes"), 401, "unauthorized", "token"},
		{"another site", get(s, "/v1/snowflakes", post, foreign), 403, "cross_site", "other sites"},
		{"another host", get(s, "/v1/snowflakes", host), 421, "bad_host", "Host"},
	} {
		checkProblem(t, c.path, c.w, problem{Status: c.status, Detail: c.detail, Reason: c.reason})
		if c.status == 405 && c.w.Header().Get("Allow") != "GET, HEAD, POST" {
			t.Errorf("%s: %v", c.path, c.w.Header())
		}
	}
	if g.next != 0 {
		t.Errorf("%d IDs were taken", g.next)
	}
	g.err = context.Canceled
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("a caller that has gone: recovered %v", err)
		}
	}()
	t.Errorf("a caller that has gone: answered %d", get(s, "/v1/snowflakes").Code)
}

// Whatever is asked for, the answer has as many IDs as were taken, or is an error that says so.
func FuzzV1(f *testing.F) {
	for _, path := range []string{
		"segments/order", "segments/a%2Fb?count=7", "snowflakes?count=1&x", "snowflakes?count=%", "segments//",
	} {
		f.Add(path)
	}
	g := &fakeGenerator{initialised: true}
	s := serve(f, g)
	f.Fuzz(func(t *testing.T, path string) {
		g.next, g.taken = 0, nil
		r, err := http.NewRequest(http.MethodGet, "http://127.0.0.1/v1/"+path, nil)
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 200 {
			reason := unmarshal[problem](t, strings.NewReader(w.Body.String())).Reason
			checkProblem(t, path, w, problem{Status: w.Code, Reason: reason})
			return
		}
		var body struct{ Count int64 }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Count != g.next || body.Count < 1 {
			t.Errorf("%s: %s (%v), and %d were taken", path, w.Body, err, g.next)
		}
	})
}
