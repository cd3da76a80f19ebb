// Package web looks at the operators' page in a browser: on answers that are made up, which show any state at once, and
// on real generators.
package web

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/browser"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// All tests share a browser, in tabs of their own.
func TestDashboard(t *testing.T) {
	t.Parallel()
	b := browser.New(t)
	for name, test := range map[string]func(*testing.T, *browser.Browser){
		"states": states, "page": page, "live": live, "token": token,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

//go:embed look.js
var lookScript string

// look opens the page at an address, where its script look can be asked.
func look(tab *browser.Tab, address string, before ...browser.Action) *browser.Tab {
	tab.Do(append(before, chromedp.Navigate(address), chromedp.Evaluate[chromedp.Void](lookScript))...)
	return tab
}

// says waits for a text in an element.
func says(tab *browser.Tab, path, text string) {
	tab.Await(text, fmt.Sprintf(`look.says(%q, %q)`, path, text))
}

// open opens the row of a tag. It stays open.
func open(tab *browser.Tab, tag string) {
	row := fmt.Sprintf(`look.row(%q)`, tag)
	tab.Await("the row of "+tag, row)
	tab.Do(chromedp.Evaluate[chromedp.Void](row + `.open = true`))
}

// typeIn puts text in the place of what is in an input, by keys.
func typeIn(tab *browser.Tab, input, text string) {
	tab.Do(chromedp.Focus(chromedp.CSS(input)), chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)),
		chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(text))
}

// media makes the system light or dark.
func media(scheme string) browser.Action {
	return browser.Send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// asksOnly fails the test if the page asked another site for something.
func asksOnly(t *testing.T, tab *browser.Tab, address string) {
	t.Helper()
	for _, asked := range tab.Addresses() {
		if !strings.HasPrefix(asked, address+"/") {
			t.Errorf("the page asks for %s", asked)
		}
	}
}

type object = map[string]any

// site serves the page's own files, and answers its questions with what a test has set.
type site struct {
	url string

	events  []object
	problem string

	mu      sync.Mutex
	causes  []admin.Cause
	answers map[string]func(r *http.Request, n int) any // by path; n is how often it was asked before; nil: no answer
	asked   map[string]int
}

var questions = []string{"overview", "events", "busiest", "tags"}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{answers: make(map[string]func(*http.Request, int) any), asked: make(map[string]int)}
	s.events = []object{event("tag.created", longTag, longNode, object{"step": 1000})}
	s.wrong()
	s.answer("tags", object{"tags": []any{}, "next": ""})
	s.answer("busiest", object{"tags": []any{}})
	mux := http.NewServeMux()
	mux.Handle("/dashboard/", http.FileServer(http.Dir("../../bus/gateway")))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "../../bus/gateway/dashboard/") // which has index.html
	})
	for _, path := range questions {
		mux.HandleFunc("/dashboard/"+path, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked[path]++
			if s.answers[path] == nil {
				panic(http.ErrAbortHandler) // the connection ends
			}
			_ = json.NewEncoder(w).Encode(s.answers[path](r, s.asked[path])) // the page may be gone
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// answer sets the answer to questions at a path: always the same, or a function; nil: none.
func (s *site) answer(path string, with any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch with := with.(type) {
	case nil:
		s.answers[path] = nil
	case func(*http.Request, int) any:
		s.answers[path] = with
	default:
		s.answers[path] = func(*http.Request, int) any { return with }
	}
}

// overview sets the state of generators. Each hands out 5,000 IDs between two answers. change may change the states,
// and returns what else to answer.
func (s *site) overview(change func(n int, nodes []admin.State) object, names ...string) {
	s.answer("overview", func(_ *http.Request, n int) any {
		var nodes []admin.State
		for i, name := range names {
			worker := int64(i)
			nodes = append(nodes, admin.State{
				Node: name, Version: "v1.0.0", Address: "nats://127.0.0.1:4222", Worker: &worker,
				Started: time.Now().Add(-time.Hour), Busiest: []admin.Buffer{},
				Readiness: admin.Readiness{Ready: true, Segment: true, Snowflake: true},
				Counts:    admin.Counts{Requests: int64(n) * 500, IDs: int64(n) * 5000, Errors: map[bus.Reason]int64{}},
			})
		}
		answer := object{"node": names[0], "unix_ms": time.Now().UnixMilli(), "nodes": nodes, "lost": []any{},
			"causes": s.causes}
		for key, value := range change(n, nodes) {
			answer[key] = value
		}
		return answer
	})
}

func well(int, []admin.State) object { return nil }

// wrong sets what is wrong, and the events.
func (s *site) wrong(causes ...admin.Cause) {
	s.answer("events", object{"problem": s.problem, "events": s.events})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.causes = append([]admin.Cause{}, causes...)
}

// cause is what generators find of one kind.
func cause(kind string, severity admin.Severity, finding admin.Finding, nodes ...string) admin.Cause {
	c := admin.Cause{Kind: kind, Severity: severity, Since: time.Now()}
	finding.Kind, finding.Severity, finding.Since = kind, severity, time.Now()
	for _, node := range nodes {
		c.Findings = append(c.Findings, admin.NodeFinding{Node: node, Finding: finding})
	}
	return c
}

// event is an event.
func event(kind, key, node string, body object) object {
	return object{"id": kind + key + node, "time": time.Now(), "severity": "alert", "type": "leaf." + kind,
		"subject": key, "source": "/leaf/" + node, "data": body}
}

// buffer is what a generator has of a tag: a segment that is half used, and the next one. The page measures the rate by
// what was taken.
func buffer(tag, state string, first, left int64, taken int) admin.Buffer {
	b := admin.Buffer{Tag: tag, State: state, Step: 1000, Left: left, Taken: int64(taken), Segments: []admin.Segment{}}
	for i := range min(left, 2) {
		from := bus.ID(first + i*1000)
		b.Segments = append(b.Segments, admin.Segment{First: from, Last: from + 999, Next: from + 500})
	}
	return b
}
