package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/leafbus/leafbus/internal/testkit"
)

// What goes wrong in a page is a complaint, whether it shows or not. A page without faults has none, nor has one that
// thinks better of a request.
func TestComplaints(t *testing.T) {
	t.Parallel()
	b := New(t)
	for name, c := range map[string]struct{ html, script, want string }{
		"exception": {"", `throw new Error("dropped")`, "dropped"},
		"rejection": {"", `Promise.reject(new Error("let down"))`, "let down"},
		"console":   {"", `console.error("beware", 7)`, "beware"},
		"dialog":    {"", `alert("boo")`, "boo"},
		"policy":    {`<script>document.title = "injected"</script>`, "", "inline script violates"},
		"missing":   {`<img src="missing.png">`, "", "404"},
		"foreign":   {`<img src="http://192.0.2.1/a.png">`, "", "192.0.2.1/a.png' violates"},
		"none": {"", `const request = new AbortController();
			fetch("/", { signal: request.signal }).catch(() => document.body.title = "given up");
			request.abort();
			console.log("all is well");`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Security-Policy",
					"default-src 'none'; script-src 'self'; img-src 'self' data:; connect-src *")
				switch r.URL.Path {
				case "/":
					w.Header().Set("Content-Type", "text/html")
					fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><title>page</title><body>`,
						c.html, `<script src="script.js"></script>`)
				case "/script.js":
					w.Header().Set("Content-Type", "text/javascript")
					fmt.Fprint(w, c.script)
				default:
					http.NotFound(w, r)
				}
			}))
			t.Cleanup(site.Close)
			tab := b.Open(t)
			if c.want != "" {
				tab.Expect("") // all of them
			}
			tab.Do(chromedp.Navigate(site.URL))
			tab.Await("the end of the page", "document.readyState === 'complete'")
			if c.want == "" {
				tab.Await("the script", "document.body.title === 'given up'")
				return // Open checks that there is no complaint
			}
			testkit.Eventually(t, "a complaint", func() bool {
				tab.mu.Lock()
				defer tab.mu.Unlock()
				return strings.Contains(strings.Join(tab.complaints, "\n"), c.want)
			})
			if title := Eval[string](tab, "document.title"); title != "page" {
				t.Errorf("the title is %q", title)
			}
		})
	}
}
