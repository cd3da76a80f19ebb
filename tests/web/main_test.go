// Package web looks at the operators' page in a browser: on answers that are made up, which show any state at once, and on
// real generators.
package web

import (
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
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/browser"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

type object = map[string]any

// site serves the page's own files, and answers its questions with what a test has set.
type site struct {
	url string

	mu      sync.Mutex
	answers map[string]func(r *http.Request, n int) any // by path; n is how often it was asked before; nil: no answer
	asked   map[string]int
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{answers: make(map[string]func(*http.Request, int) any), asked: make(map[string]int)}
	s.answer("feed", feed())
	s.answer("tags", object{"tags": []any{}, "next": ""})
	s.answer("workers", object{"registry": "kv", "workers": []any{}, "next": 0})
	mux := http.NewServeMux()
	mux.Handle("/dashboard/", http.FileServer(http.Dir("../../bus/gateway")))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "../../bus/gateway/dashboard/") // which has index.html
	})
	for _, path := range []string{"overview", "feed", "tags", "workers"} {
		mux.HandleFunc("/dashboard/"+path, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			answer, n := s.answers[path], s.asked[path]
			s.asked[path]++
			s.mu.Unlock()
			if answer == nil {
				panic(http.ErrAbortHandler) // the connection ends
			}
			_ = json.NewEncoder(w).Encode(answer(r, n))
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// answer sets an answer to the questions at a path: a function of the request and of how often it was asked, or always the
// same; nil: none.
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

// overview is the state of all generators. Each of them hands out 5,000 IDs between two answers.
func (s *site) overview(change func(n int, nodes []bus.State) object, names ...string) {
	s.answer("overview", func(_ *http.Request, n int) any {
		var nodes []bus.State
		for i, name := range names {
			worker := int64(i)
			nodes = append(nodes, bus.State{Node: name, Version: "v1.0.0", Address: "nats://127.0.0.1:4222", Started: time.Now().Add(-time.Hour),
				Worker: &worker, Readiness: bus.Readiness{Ready: true, Segment: true, Snowflake: true}, Busiest: []bus.Buffer{},
				Counts: bus.Counts{Requests: int64(n) * 500, IDs: int64(n) * 5000, Errors: map[bus.Reason]int64{}}})
		}
		answer := object{"node": names[0], "unix_ms": time.Now().UnixMilli(), "lost": []any{}, "ending": []any{}, "nodes": nodes}
		for key, value := range change(n, nodes) {
			answer[key] = value
		}
		return answer
	})
}

func well(int, []bus.State) object { return nil }

// buffer is what a generator has of a tag: a segment that is half used, and the next one.
func buffer(tag, state string, first, left int64) bus.Buffer {
	b := bus.Buffer{Tag: tag, State: state, Step: 1000, Left: left, Taken: 1, Rate: 10, Segments: []bus.Segment{}}
	if left > 0 {
		b.Segments = append(b.Segments, bus.Segment{First: bus.ID(first), Last: bus.ID(first + 999), Next: bus.ID(first + 500)},
			bus.Segment{First: bus.ID(first + 1000), Last: bus.ID(first + 1999), Next: bus.ID(first + 1000)})
	}
	return b
}

// at is a buffer of a generator.
func at(node string, b bus.Buffer) object {
	text, _ := json.Marshal(b) // it has no values that cannot be written
	found := object{"node": node}
	_ = json.Unmarshal(text, &found)
	return found
}

// feed is what the page shows of events: these causes last.
func feed(causes ...object) object {
	lasting := 0
	for _, cause := range causes {
		lasting += cause["count"].(int)
	}
	return object{"causes": append([]object{}, causes...), "lasting": lasting, "past": []any{}, "ended": 0,
		"events": []object{event("tag.created", longTag, longNode, object{"step": 1000})}}
}

// event is an event, or an alert of a cause.
func event(kind, key, node string, body object) object {
	return object{"id": kind + key + node, "time": time.Now(), "severity": "alert", "type": "leaf." + kind, "key": key, "node": node, "body": body}
}

// look opens the page of an address.
func look(t *testing.T, b *browser.Browser, address string, before ...browser.Action) *browser.Tab {
	t.Helper()
	tab := b.Open(t)
	tab.Do(append(before, chromedp.Navigate(address))...)
	return tab
}

// open opens the row of a tag. It stays open.
func open(tab *browser.Tab, tag string) {
	row := fmt.Sprintf(`[...document.querySelectorAll('#tags [data-tag]')].find((row) => row.dataset.tag === %q)`, tag)
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

// says is an expression: an element's text contains the text.
func says(element, text string) string {
	return fmt.Sprintf(`document.querySelector('%s')?.innerText.includes(%q)`, element, text)
}

// own fails the test if the page asked another site for something.
func own(t *testing.T, tab *browser.Tab, address string) {
	t.Helper()
	for _, asked := range tab.Addresses() {
		if !strings.HasPrefix(asked, address+"/") {
			t.Errorf("the page asks for %s", asked)
		}
	}
}
