package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/browser"
)

// site is an installation of two generators that nothing happens to.
type site struct {
	g  *generator // whose dashboard is looked at
	nc *nats.Conn
}

// longTag is the longest name there can be, without a place to break it.
var longTag = strings.Repeat("long-tag", 16)

func newSite(t *testing.T) site {
	t.Helper()
	server := newNATS(t)
	s := site{nc: connect(t, server.ClientURL())}
	for _, node := range []string{"one", "two"} {
		s.g = serve(t, t.TempDir(), "-s", server.ClientURL(), "--node", node, "--http", "127.0.0.1:0",
			"--tag", "order:1000", "--tag", "invoice:50", "--tag", longTag+":100")
	}
	for _, tag := range []string{"order", "invoice", longTag} {
		filled(t, s.nc, tag, 2, "30")
	}
	return s
}

// pageItself is the page apart from what it tells of generators.
func pageItself(t *testing.T, b *browser.Browser) {
	s := newSite(t)
	for name, test := range map[string]func(*testing.T, *browser.Browser, site){
		"decode": decodesSnowflakes, "links": leadsToTags, "keyboard": obeysKeyboard, "focus": keepsFocus, "focus of rows": rowsKeepFocus,
		"accessibility": isAccessible, "narrow": fitsNarrow, "pictures": hasLooks, "zone": saysItsZone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b, s)
		})
	}
}

// decodes pastes a snowflake, and wants its worker and its time.
func decodes(t *testing.T, tab *browser.Tab, nc *nats.Conn, id string) {
	t.Helper()
	typeIn(tab, "#decode-id", id+kb.Enter)
	d := reply[bus.Decoded](t, ask(t, nc, "leaf.decode", id))
	at := time.UnixMilli(d.UnixMS).UTC().Format("2006-01-02T15:04:05.000Z")
	tab.Await(fmt.Sprintf("worker %d, %s", d.Worker, at), fmt.Sprintf(
		`((text) => text.includes(%q) && /worker\s*%d\b/i.test(text))(document.querySelector('#decode-result').innerText)`, at, d.Worker))
}

func decodesSnowflakes(t *testing.T, b *browser.Browser, s site) {
	tab := look(t, b, s.g)
	first, second := string(ask(t, s.nc, "leaf.snowflake", "").Data), string(ask(t, s.nc, "leaf.snowflake", "").Data)
	decodes(t, tab, s.nc, first)
	typeIn(tab, "#decode-id", "12 monkeys")
	const result = `document.querySelector('#decode-result').innerText`
	before := browser.Eval[string](tab, result)
	tab.Do(chromedp.Click(chromedp.CSS("#decode button")))
	tab.Await("an error in place of the result", fmt.Sprintf(`%s.trim() && %s !== %q && !/worker\s*\d/i.test(%s)`, result, result, before, result))

	// What only the generator can tell is its sentence.
	const future = "9223372036854775807"
	var refusal struct{ ErrorMsg string }
	must(t, json.Unmarshal([]byte(fetch(t, "GET", s.g.http+"/decodeSnowflakeId?snowflakeId="+future).body), &refusal))
	typeIn(tab, "#decode-id", future+kb.Enter)
	tab.Await(fmt.Sprintf("%q", refusal.ErrorMsg), fmt.Sprintf(`%q && %s.includes(%q)`, refusal.ErrorMsg, result, refusal.ErrorMsg))
	decodes(t, tab, s.nc, second)
}

// Each time is in the zone of the browser, and says so: short ones once for all, full ones each, as leaf prints them.
func saysItsZone(t *testing.T, b *browser.Browser, s site) {
	tab := look(t, b, s.g, browser.Send(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}))
	tab.Await("the zone of short times", `document.getElementById('zone').textContent === 'Times in UTC+05:30, Asia/Calcutta' ||
		document.getElementById('zone').textContent === 'Times in UTC+05:30, Asia/Kolkata'`)
	decodes(t, tab, s.nc, string(ask(t, s.nc, "leaf.snowflake", "").Data))
	const full = `[...document.querySelectorAll('[title]')].map((e) => e.title).concat(document.body.innerText.split('\n')).flatMap((text) => text.match(/\d{4}-\d\d-\d\d\S*( \d\d:\S*)?/g) ?? [])`
	tab.Await("times of events", `document.querySelectorAll('#events time[title]').length > 3`)
	for _, at := range browser.Eval[[]string](tab, full) {
		_, err := time.Parse(time.RFC3339, at)
		if err != nil || !strings.HasSuffix(at, "+05:30") && !strings.HasSuffix(at, "Z") {
			t.Errorf("the page shows the time %q", at)
		}
	}
	if zoned := browser.Eval[int](tab, full+`.filter((at) => at.endsWith('+05:30')).length`); zoned < 5 {
		t.Errorf("only %d times are in the browser's zone", zoned)
	}
	const wrong = `[...document.querySelectorAll('time[datetime]')].filter((e) => Date.parse(e.title) !== Date.parse(e.dateTime)).length`
	if n := browser.Eval[int](tab, wrong); n > 0 {
		t.Errorf("%d times differ from their titles", n)
	}
}

// Links to Leaf's two pages lead to what takes their place.
func leadsToTags(t *testing.T, b *browser.Browser, s site) {
	for _, path := range []string{"/cache", "/db"} {
		tab := b.Open(t)
		tab.Do(chromedp.EmulateViewport(1000, 300), chromedp.Navigate(s.g.http+path)) // too low to show them at first
		answered(tab, s.g.node)
		if at := browser.Eval[string](tab, "location.pathname"); at != "/" {
			t.Errorf("%s leads to %s", path, at)
		}
		tab.Await("the tags in view", `((box) => box.top < innerHeight && box.top >= document.querySelector('header').getBoundingClientRect().bottom)(document.querySelector('#tags').getBoundingClientRect())`)
	}
}

// focused describes what has the keyboard, and whether people see that: by an
// outline or a shadow of its own or of what stands for it in its label.
const focused = `(() => {
	const at = document.activeElement;
	const drawn = [at, ...(at.labels?.[0]?.querySelectorAll('*') ?? [])].some((e) => {
		const style = getComputedStyle(e);
		return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none';
	});
	return { Name: at.id || at.getAttribute('href') || at.value || at.tagName, Drawn: drawn };
})()`

func obeysKeyboard(t *testing.T, b *browser.Browser, s site) {
	tab := look(t, b, s.g)
	var order []string
	for range 60 {
		tab.Do(chromedp.KeyEvent(kb.Tab))
		at := browser.Eval[struct {
			Name  string
			Drawn bool
		}](tab, focused)
		if at.Name == "BODY" { // round once
			break
		}
		order = append(order, at.Name)
		if !at.Drawn {
			t.Errorf("nobody sees that %s has the focus", at.Name)
		}
	}
	search, decode := slices.Index(order, "search"), slices.Index(order, "decode-id")
	if search < 0 || decode < search {
		t.Errorf("the tabulator goes to %v", order)
	}

	id := string(ask(t, s.nc, "leaf.snowflake", "").Data)
	typeIn(tab, "#decode-id", id+kb.Enter)
	tab.Await("the result", `/worker\s*\d/i.test(document.querySelector('#decode-result').innerText)`)
}

// Answers that come while somebody types change what is shown, and neither what
// is typed nor where.
func keepsFocus(t *testing.T, b *browser.Browser, s site) {
	tab := look(t, b, s.g)
	open(tab, "invoice")
	tab.Await("the tag", `document.querySelector('#tags [data-tag="invoice"] [data-node="one"]')`)
	typeIn(tab, "#search", "invo")
	awaitTags(t, tab, "invoice")
	tab.Do(chromedp.KeyEvent(kb.ArrowLeft), chromedp.Evaluate[chromedp.Void](`
		window.kept = ['#search', '#tags [data-tag="invoice"]', '#tags [data-tag="invoice"] [data-node="one"]',
			'#generators [data-node="one"]'].map((path) => [path, document.querySelector(path)]);
		window.asked = () => performance.getEntriesByType('resource').filter(({ name }) => /dashboard\/(overview|tags)/.test(name)).length;
		window.before = asked();`))
	shown := browser.Eval[string](tab, heldOnPage("invoice"))
	granted(t, ask(t, s.nc, "leaf.segment.invoice", "1"))
	tab.Await("some answers, and one with news", fmt.Sprintf(`asked() >= before + 5 && %s !== '%s'`, heldOnPage("invoice"), shown))
	if lost := browser.Eval[[]string](tab, `kept.filter(([path, element]) => document.querySelector(path) !== element).map(([path]) => path)`); len(lost) > 0 {
		t.Errorf("others have taken the place of %v", lost)
	}
	if at := browser.Eval[string](tab, `document.activeElement.id + " " + document.activeElement.value + " " + document.activeElement.selectionStart`); at != "search invo 3" {
		t.Errorf("the keyboard is at %q", at)
	}
}

// isAccessible looks at what a screen reader is given.
func isAccessible(t *testing.T, b *browser.Browser, s site) {
	tab := look(t, b, s.g)
	tree := browser.Get(tab, func(ctx context.Context, target *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	text := func(v *accessibility.Value) (s string) {
		if v != nil {
			_ = json.Unmarshal(v.Value, &s) // others than texts are none
		}
		return s
	}
	seen := make(map[string]int)
	for _, node := range tree.Nodes {
		if node.Ignored {
			continue
		}
		role := text(node.Role)
		seen[role]++
		for _, p := range node.Properties {
			if p.Name == "live" {
				seen["live "+text(p.Value)]++
			}
		}
		if slices.Contains([]string{"textbox", "searchbox", "checkbox", "radio", "button", "link", "table", "region", "navigation"}, role) &&
			strings.TrimSpace(text(node.Name)) == "" {
			t.Errorf("a %s has no name", role)
		}
	}
	for _, role := range []string{"main", "heading", "searchbox", "textbox", "button", "table", "row", "live polite"} {
		if seen[role] == 0 {
			t.Errorf("there is no %s among %v", role, seen)
		}
	}
}

// A telephone need not be moved sideways, whatever the names.
func fitsNarrow(t *testing.T, b *browser.Browser, s site) {
	tab := look(t, b, s.g, chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile),
		browser.Send(emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{Hidden: true}))
	open(tab, longTag)
	tab.Await("the long name", fmt.Sprintf(`document.querySelector('#tags [data-tag=%q] [data-node=two]')?.checkVisibility()`, longTag))
	decodes(t, tab, s.nc, string(ask(t, s.nc, "leaf.snowflake", "").Data))
	tab.Await("events", `document.querySelector('#events [data-type]')`)
	const width = `({ Has: document.documentElement.clientWidth, Needs: document.documentElement.scrollWidth, Shows: Math.round(visualViewport.width) })`
	if w := browser.Eval[struct{ Has, Needs, Shows int }](tab, width); w.Has != 360 || w.Needs > w.Has || w.Shows != 360 {
		t.Errorf("the page is wider than its window: %+v", w)
	}
}

// A row that has the focus keeps it when the rows get another order.
func rowsKeepFocus(t *testing.T, b *browser.Browser, s site) {
	tab := look(t, b, s.g)
	kept := browser.Eval[[]string](tab, `(async () => {
		const { Keyed } = await import('./dashboard/dom.js');
		const list = document.body.appendChild(document.createElement('ul'));
		const rows = new Keyed(list, (name) => name, (name) => {
			const element = document.createElement('li');
			element.appendChild(document.createElement('button')).textContent = name;
			return { element, update() {} };
		});
		rows.show(['a', 'b', 'c']);
		list.querySelectorAll('button')[2].focus();
		rows.show(['c', 'b', 'a', 'd']);
		return [document.activeElement.textContent, list.innerText.replaceAll(/\s+/g, '')];
	})()`)
	if want := []string{"c", "cbad"}; !slices.Equal(kept, want) {
		t.Errorf("the focus and the rows are %q, want %q", kept, want)
	}
}
