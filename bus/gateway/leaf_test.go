package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true, gap: true}
	s := serve(t, g)
	const text, asJSON = "text/plain;charset=UTF-8", "application/json;charset=UTF-8"
	for _, c := range []struct{ path, accept, body, contentType string }{
		{"segment/get/order", "", "1", text},
		{"segment/get/order", "*/*", "2", text},
		{"segment/get/order", "application/json", "3", asJSON},
		{"snowflake/get/any", "", "4", text},
		{"snowflake/get/any", "application/json", "5", asJSON},
		{"segment/get/order?count=3", "", "6\n8-9", text},
		{"segment/get/order?count=1", "", "10", text},
		{"segment/get/order?count=2", "application/json",
			`{"count":2,"ranges":[{"first":"11","last":"11"},{"first":"13","last":"13"}]}`, asJSON},
		{"segment/get/order?count=1", "application/json", `{"count":1,"ranges":[{"first":"14","last":"14"}]}`, asJSON},
		{"snowflake/get/any?count=2", "", "15\n17", text},
		{"segment/get/order?other=7", "", "18", text},
		{"segment/get/order?x=%zz&a=1;b=2", "", "19", text}, // Leaf reads none
	} {
		taken := len(g.taken)
		w := get(s, "/api/"+c.path, header("Accept", c.accept))
		if w.Code != 200 || w.Body.String() != c.body || w.Header().Get("Content-Type") != c.contentType {
			t.Errorf("%s (%q): %d %v %q, want %q %q", c.path, c.accept, w.Code, w.Header(), w.Body, c.contentType,
				c.body)
		}
		if w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s may come from a cache: an ID would come twice", c.path)
		}
		if ofTag := len(g.taken) > taken; ofTag != strings.HasPrefix(c.path, "segment") {
			t.Errorf("%s: the IDs are those of a tag: %v", c.path, ofTag)
		}
	}
}

// An answer with IDs of a strict tag says so, whatever its form. No other answer does.
func TestOrderOfIDs(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true, strict: "invoice"}
	s := serve(t, g)
	ask := func(path, want string, change ...func(*http.Request)) {
		t.Helper()
		w := get(s, path, change...)
		if got := w.Header().Values(wire.HeaderOrder); strings.Join(got, " ") != want {
			t.Errorf("%s: %d, %s is %q, want %q", path, w.Code, wire.HeaderOrder, got, want)
		}
	}
	asJSON := header("Accept", "application/json")
	ask(leafSegmentPath+"invoice", "strict")
	ask(leafSegmentPath+"invoice", "strict", asJSON)
	ask(leafSegmentPath+"invoice?count=3", "strict")
	ask(leafSegmentPath+"invoice?count=3", "strict", asJSON)
	ask(leafSegmentPath+"order", "")
	ask(leafSegmentPath+"order?count=3", "", asJSON)
	ask("/api/snowflake/get/invoice", "")
	ask(leafSegmentPath+"invoice", "", method("POST"))
	ask(leafSegmentPath+"invoice?count=0", "")
	for _, reason := range []bus.Reason{bus.UnknownTag, bus.StoreUnavailable, bus.TimedOut} {
		g.err = &bus.Error{Code: 503, Reason: reason}
		ask(leafSegmentPath+"invoice", "")
		ask(leafSegmentPath+"invoice?count=3", "", asJSON)
	}
}

// What a tag is stands in the path as it is: nothing is cut off, cleaned or redirected.
func TestTagOfPath(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true}
	s := serve(t, g)
	for path, tag := range map[string]string{
		"order": "order", "shop.order.eu": "shop.order.eu", "a/b": "a/b", "a%2Fb": "a/b", "a%2fb": "a/b", "a//b": "a//b",
		"a/./b": "a/./b", "a%3Db-c": "a=b-c", "a=b-c": "a=b-c", "order/": "order/", "order.json": "order.json", "%6Frder": "order",
		"a+b": "a+b", "a%20b": "a b", "%00": "\x00",
	} {
		g.taken = nil
		if w := get(s, leafSegmentPath+path); w.Code != 200 || len(g.taken) != 1 || g.taken[0] != tag {
			t.Errorf("%s: %d, asked for %q, want %q", path, w.Code, g.taken, tag)
		}
	}
}

func TestOnlyGetTakesIDs(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true}
	s := serve(t, g)
	for _, path := range []string{"/api/segment/get/order", "/api/segment/get/order?count=5", "/api/snowflake/get/any"} {
		for _, name := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"} {
			if w := get(s, path, method(name)); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, allowed %q", name, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	if w := get(s, "/api/snowflake/get/any", method("HEAD")); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
	if g.next != 0 || g.taken != nil {
		t.Errorf("IDs were taken, %d in all, of %v", g.next, g.taken)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true}
	s := serve(t, g)
	for path, want := range map[string]struct {
		status int
		say    string
	}{
		"/api/segment/get/order?count=0":             {400, `count is \"0\"`},
		"/api/segment/get/order?count=":              {400, `count is \"\"`},
		"/api/segment/get/order?count":               {400, `count is \"\"`},
		"/api/segment/get/order?count=-1":            {400, `count is \"-1\"`},
		"/api/segment/get/order?count=1.5":           {400, "one whole number"},
		"/api/segment/get/order?count=1&count=2":     {400, `count is \"1 and 2\"`},
		"/api/segment/get/order?count=5;x=1":         {400, "one whole number"},
		"/api/segment/get/order?count=%7B%7D":        {400, "one whole number"},
		"/api/snowflake/get/any?count=many":          {400, `count is \"many\"`},
		"/api/segment/get/order?count=%22%0A%3Cb%3E": {400, `\\n`},
		"/api/segment/get/":                          {404, "segment/get/TAG"},
		"/api/snowflake/get/":                        {404, "segment/get/TAG"},
		"/api/segment/get":                           {404, "not found"},
		"/api/other/get/order":                       {404, "not found"},
		"/decodeSnowflakeId":                         {400, "snowflakeId is missing"},
		"/dashboard/other":                           {404, "not found"},
	} {
		w := get(s, path)
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.say) {
			t.Errorf("%s: %d %s, want %d and %q", path, w.Code, w.Body, want.status, want.say)
		}
		if body := unmarshal[failure](t, w.Body); body.Status != want.status || body.Exception == "" || strings.Contains(body.Exception, "sankuai") {
			t.Errorf("%s: %+v", path, body)
		}
	}
	if g.next != 0 {
		t.Errorf("%d IDs were taken", g.next)
	}
}

// As Leaf has it: 500, its word for the reason, and the fields in its order.
func TestErrorsAsLeafTellsThem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason             bus.Reason
		segment, snowflake int
	}{
		{bus.UnknownTag, -2, -2},
		{bus.BadTag, -2, -2},
		{bus.StoreUnavailable, -3, -3},
		{bus.TimedOut, -3, -3},
		{bus.Overloaded, -3, -3},
		{bus.Draining, -3, -3},
		{bus.Exhausted, -3, -3},
		{bus.Internal, -3, -3},
		{bus.ClockBackwards, -3, -3},
		{bus.NoWorkerID, -1, -1},
	} {
		err := &bus.Error{Code: 503, Reason: c.reason, Message: "in words", RetryAfter: 1200 * time.Millisecond}
		g := &fakeGenerator{err: err, initialised: true}
		s := serve(t, g)
		before := time.Now().UnixMilli()
		for path, result := range map[string]int{"/api/segment/get/a%2Fb": c.segment, "/api/snowflake/get/any?count=7": c.snowflake} {
			w := get(s, path, header("Accept", "text/html"))
			_, rest, _ := strings.Cut(w.Body.String(), `{"timestamp":`)
			stamp, rest, _ := strings.Cut(rest, ",")
			want := `"status":500,"error":"Internal Server Error","exception":"com.sankuai.inf.leaf.server.exception.LeafServerException",` +
				fmt.Sprintf(`"message":"Result{id=%d, status=EXCEPTION}","path":"%s"}`, result, strings.SplitN(path, "?", 2)[0])
			if w.Code != 500 || rest != want || w.Header().Get("Content-Type") != "application/json;charset=UTF-8" {
				t.Errorf("%s: %d %q %s\nwant %s", c.reason, w.Code, w.Header().Get("Content-Type"), rest, want)
			}
			var ms json.Number
			if err := json.Unmarshal([]byte(stamp), &ms); err != nil || stamp < fmt.Sprint(before) {
				t.Errorf("timestamp %s (%v)", stamp, err)
			}
			if h := w.Header(); h.Get("Leaf-Error-Reason") != string(c.reason) || h.Get("Leaf-Error") != "in words" || h.Get("Retry-After") != "2" {
				t.Errorf("%s: header %v", c.reason, h)
			}
		}
		g.initialised = false
		want := -1
		if c.segment == -2 {
			want = -2
		}
		if w := get(s, "/api/segment/get/order"); !strings.Contains(w.Body.String(), fmt.Sprintf("Result{id=%d,", want)) {
			t.Errorf("%s before the store is open: %s", c.reason, w.Body)
		}
	}
	// What is wrong with a count is none of Leaf's errors.
	s := serve(t, &fakeGenerator{err: &bus.Error{Code: 413, Reason: bus.BatchTooLarge, Message: "too many"}, initialised: true})
	for query, want := range map[string]struct {
		status int
		reason string
	}{"count=5": {413, "batch_too_large"}, "count=x": {400, "bad_request"}} {
		w := get(s, "/api/segment/get/order?"+query)
		if h := w.Header(); w.Code != want.status || h.Get("Leaf-Error-Reason") != want.reason || h.Get("Leaf-Error") == "" ||
			unmarshal[failure](t, w.Body).Exception != want.reason {
			t.Errorf("%s: %d %v %s", query, w.Code, h, w.Body)
		}
	}
}

// A caller that has gone gets nothing that could be read as an answer.
func TestCallerThatHasGone(t *testing.T) {
	t.Parallel()
	s := serve(t, &fakeGenerator{err: context.Canceled})
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("recovered %v", err)
		}
	}()
	w := get(s, "/api/segment/get/order")
	t.Errorf("answered %d %q", w.Code, w.Body)
}

func TestPrefersJSON(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "text/plain": false, "application/json": true, "APPLICATION/JSON": true,
		"application/json;charset=UTF-8":                                  true,
		"application/json, text/plain, */*":                               true,  // axios
		"text/plain, application/json, application/*+json, */*":           false, // Spring's RestTemplate for a String
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": false,
		"*/*, application/json":                                           true,
		"image/png":                                                       false,
	} {
		if got := prefersJSON([]string{accept}); got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
	if !prefersJSON([]string{"*/*", "application/json"}) {
		t.Error("the second header is not read")
	}
	if prefersJSON(nil) {
		t.Error("without the header")
	}
}

var wholeNumber = regexp.MustCompile(`^\s*[1-9][0-9]*\s*$`)

// A count that is not understood as it was meant would be IDs too many or too few.
func FuzzParseCount(f *testing.F) {
	for _, query := range []string{"", "count=5", "count=05", "a=b&count=7", "count=1&count=1", "count=%31", "count=1;2", "Count=3", "count=99999999999999999999"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		n, given, err := parseCount(query, false)
		if m, _, strict := parseCount(query, true); strict == nil && (m != n || err != nil) {
			t.Errorf("%q: alone it is %d, else %d, %v", query, m, n, err)
		}
		switch {
		case err != nil:
			if n != 0 {
				t.Errorf("%d with an error", n)
			}
		case n < 1, !given && n != 1:
			t.Errorf("%q is %d, %v", query, n, given)
		}
		if wholeNumber.MatchString(query) && given {
			t.Errorf("%q has no name", query)
		}
	})
}
