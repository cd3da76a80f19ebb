package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/browser"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// The dashboard is looked at as operators look at it: in a browser, which
// complains of what they would not see. All share one, in tabs of their own.
func TestDashboard(t *testing.T) {
	t.Parallel()
	b := browser.New(t)
	for name, test := range map[string]func(*testing.T, *browser.Browser){
		"buffers": showsBuffers, "alert": showsAlert, "restart": showsRestart, "token": showsWithToken,
		"search": searchesManyTags, "escaping": escapesNames, "page": pageItself, "gone": showsGone, "overload": showsOverload, "many alerts": showsManyAlerts, "ends": showsWhatEndsSoonest,
		"long numbers": showsLongNumbers, "strict": showsStrict, "rules": showsRules, "new": showsNewInstallation, "audit": auditsAndTraces,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// look opens the dashboard of a generator, and waits until it has answered.
func look(t *testing.T, b *browser.Browser, g *generator, before ...browser.Action) *browser.Tab {
	t.Helper()
	tab := b.Open(t)
	tab.Do(append(before, chromedp.Navigate(g.http+"/"))...)
	answered(tab, g.node)
	return tab
}

func answered(tab *browser.Tab, nodes ...string) {
	for _, node := range nodes {
		tab.Await("generator "+node, fmt.Sprintf(`document.querySelector('#generators [data-node=%q]')`, node))
	}
}

// typeIn puts text in the place of what is in an input, by keys.
func typeIn(tab *browser.Tab, input, text string) {
	tab.Do(
		chromedp.Focus(chromedp.CSS(input)),
		chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)),
		chromedp.KeyEvent(kb.Backspace),
		chromedp.KeyEvent(text),
	)
}

// open opens the row of a tag, as a click on it does. It stays open.
func open(tab *browser.Tab, tag string) {
	row := fmt.Sprintf(`document.querySelector('#tags [data-tag=%q]')`, tag)
	tab.Await("the row of "+tag, row)
	tab.Do(chromedp.Evaluate[chromedp.Void](row + `.open = true`))
}

// held is what a generator holds of a tag.
type held struct {
	Node     string      `json:"node"`
	Left     string      `json:"left"`
	Segments [][3]string `json:"segments"` // first, last, next
}

// heldOnPage is an expression for what the page shows of a tag, in JSON.
func heldOnPage(tag string) string {
	return fmt.Sprintf(`JSON.stringify([...document.querySelectorAll('#tags [data-tag=%q] [data-node][data-left]')].map((buffer) => ({
		node: buffer.dataset.node,
		left: buffer.dataset.left,
		segments: [...buffer.querySelectorAll('.segment')].map(({ dataset: { first, last, next } }) => [first, last, next]),
	})))`, tag)
}

// settled waits until so many generators have two segments of a tag, so that they
// reserve nothing more by themselves, and returns what they hold, by name, in JSON.
func settled(t *testing.T, nc *nats.Conn, tag string, nodes int) (found []held, text string) {
	t.Helper()
	testkit.Eventually(t, "two segments of "+tag+" at each generator", func() bool {
		found = nil
		for node, b := range askBuffers(t, nc, tag, nodes) {
			if len(b.Segments) != 2 {
				return false
			}
			h := held{Node: node, Left: strconv.FormatInt(b.Left, 10)}
			for _, s := range b.Segments {
				h.Segments = append(h.Segments, [3]string{decimal(int64(s.First)), decimal(int64(s.Last)), decimal(int64(s.Next))})
			}
			found = append(found, h)
		}
		return len(found) == nodes
	})
	slices.SortFunc(found, func(a, b held) int { return strings.Compare(a.Node, b.Node) })
	data, err := json.Marshal(found)
	must(t, err)
	return found, string(data)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// used is how many IDs of the segments that are held were handed out.
func used(t *testing.T, all []held) (n int64) {
	t.Helper()
	for _, h := range all {
		for _, s := range h.Segments {
			first, err := strconv.ParseInt(s[0], 10, 64)
			must(t, err)
			next, err := strconv.ParseInt(s[2], 10, 64)
			must(t, err)
			n += next - first
		}
	}
	return n
}

// Whoever takes IDs, and wherever: the page follows each generator's memory to
// the ID, and tells how fast they go.
func showsBuffers(t *testing.T, b *browser.Browser) {
	server := newNATS(t)
	generators := make(map[string]*generator)
	for _, node := range []string{"one", "two"} {
		generators[node] = serve(t, t.TempDir(), "-s", server.ClientURL(), "--node", node, "--tag", "order:1000", "--http", "127.0.0.1:0")
	}
	nc := connect(t, server.ClientURL())
	tab := look(t, b, generators["one"])
	answered(tab, "one", "two")
	agrees := func() (all []held) {
		t.Helper()
		all, text := settled(t, nc, "order", 2)
		open(tab, "order")
		tab.Await("what the generators hold: "+text, heldOnPage("order")+" === '"+text+"'")
		return all
	}

	usedBy(t, nc, "order", 2, &allocatortest.Checker{})
	filled(t, nc, "order", 2, "50")
	before := agrees()
	granted(t, ask(t, nc, "leaf.segment.order", "7"))
	for _, g := range generators {
		if p := fetch(t, "GET", g.http+"/api/segment/get/order"); p.status != 200 {
			t.Errorf("%s answers %+v", g.node, p)
		}
	}
	if after := agrees(); used(t, after) != used(t, before)+9 {
		t.Errorf("of 9 IDs that were taken the page shows %d", used(t, after)-used(t, before))
	}
	for range 4 { // so that each generator goes on to new segments
		granted(t, ask(t, nc, "leaf.segment.order", "1500"))
	}
	agrees()

	testkit.Eventually(t, "a rate", func() bool {
		granted(t, ask(t, nc, "leaf.segment.order", ""))
		return browser.Eval[bool](tab, `Number(document.querySelector('#rate-ids').textContent.replaceAll(',', '')) > 0`)
	})
	for _, address := range tab.Addresses() {
		if !strings.HasPrefix(address, generators["one"].http+"/") {
			t.Errorf("the page asks for %s", address)
		}
	}
}

// The database is taken away under the eyes of an operator, and comes back.
func showsAlert(t *testing.T, b *browser.Browser) {
	p, dsn := newProxy(t, mariadb.NewDatabase(t))
	g := withHTTP(t, "--mysql", dsn, "--tag", "order:10", "--max-step", "10", "--max-wait", "2s")
	nc := connect(t, g.url)
	js := jetStream(t, nc)
	granted(t, ask(t, nc, "leaf.segment.order", ""))
	tab := look(t, b, g)
	const calm = `document.querySelector('#verdict').textContent`
	tab.Await("a state without alerts", `document.querySelectorAll('#alerts > li').length === 0 && !`+calm+`.includes('not ready')`)
	healthy := browser.Eval[string](tab, calm)

	p.OnRequest(func(data []byte) proxy.Action {
		if bytes.Contains(data, []byte("UPDATE")) {
			return proxy.CutBefore
		}
		return proxy.Forward
	})
	testkit.Eventually(t, "a failure", func() bool {
		ask(t, nc, "leaf.segment.order", "")
		return askBuffers(t, nc, "order", 1)[g.node].State == "failing"
	})
	const (
		alert = `#alerts-section [data-type="leaf.segment.refill_failed"][data-key="order"]`
		event = `#events [data-type="leaf.segment.refill_failed"][data-key="order"]`
	)
	tab.Await("the alert", fmt.Sprintf(`document.querySelector('%s[data-node=%q]:not(.over)')`, alert, g.node))
	tab.Await("words for those who do not see it", `[...document.querySelectorAll('[aria-live]')].some((region) => region.textContent.includes('MySQL is unavailable'))`)
	tab.Await("its event", fmt.Sprintf(`document.querySelector('%s')`, event))
	tab.Await("another verdict", fmt.Sprintf(`%s !== %q`, calm, healthy))
	told := lastEvent[refillFailed](t, js, "leaf.events.alert.segment.refill_failed.order")
	words := browser.Eval[string](tab, `document.querySelector('#alerts [data-kind="mysql"]').textContent`)
	for _, want := range []string{"MySQL is unavailable", "order", g.node, told.Error} {
		if !strings.Contains(words, want) {
			t.Errorf("the alert does not say %q: %s", want, words)
		}
	}
	picture(t, tab, "alert")

	p.OnRequest(nil)
	testkit.Eventually(t, "IDs", func() bool { return len(ask(t, nc, "leaf.segment.order", "").Header) == 0 })
	tab.Await("the end of the alert", fmt.Sprintf(`document.querySelector('%s.over') && !document.querySelector('#alerts > li')`, alert))
	tab.Await("the event of its end", `document.querySelector('#events [data-type="leaf.segment.recovered"][data-key="order"]')`)
	tab.Await("the verdict from before", fmt.Sprintf(`%s === %q`, calm, healthy))
}

// The generator behind the page goes and comes back. What was last known stays,
// and nobody has to load the page again.
func showsRestart(t *testing.T, b *browser.Browser) {
	g := withHTTP(t, "--tag", "order:1000")
	nc := connect(t, g.url)
	filled(t, nc, "order", 1, "50")
	tab := look(t, b, g)
	_, last := settled(t, nc, "order", 1)
	open(tab, "order")
	shows := func(text string) string { return heldOnPage("order") + " === '" + text + "'" }
	tab.Await("what the generator holds", shows(last))
	tab.Do(chromedp.Evaluate[chromedp.Void](`window.kept = 'not loaded again'`))

	tab.Expect("net::ERR_", "503")
	g.stop()
	const silent = `/no answer/i.test(document.querySelector('#verdict').textContent)`
	tab.Await("a word of the generator's silence", silent)
	if !browser.Eval[bool](tab, shows(last)) {
		t.Error("what was last known is gone")
	}
	picture(t, tab, "silent")

	g.again(t, "--http", strings.TrimPrefix(g.http, "http://"))
	tab.Await("the end of the silence", "!"+silent)
	filled(t, nc, "order", 1, "50")
	_, last = settled(t, nc, "order", 1)
	tab.Await("what the generator holds now", shows(last))
	if kept := browser.Eval[string](tab, "window.kept"); kept != "not loaded again" {
		t.Errorf("the page is another: %q", kept)
	}
}

// Where a token is wanted, the browser that has it gets the page and all that
// the page asks for, and others get nothing.
func showsWithToken(t *testing.T, b *browser.Browser) {
	g := withHTTP(t, "--tag", "order:1000", "--http-token", "s3cret")
	for _, path := range []string{"/", "/dashboard/app.js", "/dashboard/overview", "/dashboard/tags", "/dashboard/feed", "/dashboard/workers",
		"/dashboard/audit", "/dashboard/audit?tag=order", "/dashboard/trace?tag=order&id=1", "/decodeSnowflakeId?snowflakeId=1"} {
		if p := fetch(t, "GET", g.http+path); p.status != 401 {
			t.Errorf("%s without the token: %+v", path, p)
		}
	}
	nc := connect(t, g.url)
	filled(t, nc, "order", 1, "50")
	_, text := settled(t, nc, "order", 1)
	for name, address := range map[string]string{
		"asked":      g.http, // by the browser
		"in address": strings.Replace(g.http, "://", "://operator:s3cret@", 1),
	} {
		t.Run(name, func(t *testing.T) {
			tab := b.Open(t)
			if name == "asked" {
				tab.SignIn("operator", "s3cret")
			}
			tab.Do(chromedp.Navigate(address))
			answered(tab, g.node)
			open(tab, "order")
			tab.Await("what the generator holds", heldOnPage("order")+" === '"+text+"'")
			decodes(t, tab, nc, string(ask(t, nc, "leaf.snowflake", "").Data))
		})
	}
}
