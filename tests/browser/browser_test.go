package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/leafbus/leafbus/internal/testkit"
)

// site serves a page, below a policy that lets it run only its own files.
func site(t *testing.T, html string, files map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; img-src 'self' data:; connect-src *")
		text, ok := files[r.URL.Path]
		switch {
		case r.URL.Path == "/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><title>page</title>`+html)
		case ok:
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, text)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// whole serves a page with a script.
func whole(t *testing.T, script string) string {
	t.Helper()
	return site(t, `<script src="script.js"></script>`, map[string]string{"/script.js": script})
}

func TestTab(t *testing.T) {
	t.Parallel()
	b := New(t)
	for name, test := range map[string]func(*testing.T, *Browser){"complains": complains, "says nothing": saysNothing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// What goes wrong in a page is told, whether it shows or not.
func complains(t *testing.T, b *Browser) {
	closed := httptest.NewServer(nil)
	closed.Close()
	for name, c := range map[string]struct{ address, want string }{
		"exception": {whole(t, `throw new Error("dropped")`), "dropped"},
		"rejection": {whole(t, `Promise.reject(new Error("let down"))`), "let down"},
		"console":   {whole(t, `console.error("beware", 7)`), "beware"},
		"warning":   {whole(t, `console.warn(new Error("strange"))`), "strange"},
		"dialog":    {whole(t, `alert("boo")`), "boo"},
		"policy":    {site(t, `<script>document.title = "injected"</script>`, nil), "inline script violates"},
		"missing":   {site(t, `<img src="missing.png">`, nil), "404"},
		"refused":   {whole(t, `fetch("`+closed.URL+`").catch(() => {})`), "ERR_CONNECTION_REFUSED"},
		"foreign":   {site(t, `<img src="http://192.0.2.1/a.png">`, nil), "192.0.2.1/a.png' violates"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tab := b.Open(t)
			tab.Expect("") // all of them
			tab.Do(chromedp.Navigate(c.address))
			tab.Await("the end of the page", "document.readyState === 'complete'")
			testkit.Eventually(t, "a complaint", func() bool {
				tab.mu.Lock()
				defer tab.mu.Unlock()
				return slices.ContainsFunc(tab.complaints, func(text string) bool { return strings.Contains(text, c.want) })
			})
			if title := Eval[string](tab, "document.title"); title != "page" {
				t.Errorf("the title is %q", title)
			}
		})
	}
}

// A page without faults is left alone, also one that thinks better of a request.
func saysNothing(t *testing.T, b *Browser) {
	tab := b.Open(t)
	address := whole(t, `
		const request = new AbortController();
		fetch("/", { signal: request.signal }).catch(() => document.title = "given up");
		request.abort();
		console.log("all is well");`)
	tab.Do(chromedp.Navigate(address))
	tab.Await("the script", "document.title === 'given up'")
	if asked := tab.Addresses(); !slices.Contains(asked, address+"/script.js") {
		t.Errorf("it asked for %v", asked)
	}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	if len(tab.complaints) > 0 {
		t.Errorf("it complains: %v", tab.complaints)
	}
}
