package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit/browser"
)

// Names without a place to break them, as long as they may be, and the longest IDs.
var (
	longNode = strings.Repeat("generator_", 6)
	longTag  = strings.Repeat("long-tag", 16)
)

const hugeID = 9223372036854000001

// night is 3 a.m.: a generator is lost, the database is dead, four of thirty tags have no IDs left.
func night(s *site) {
	tag := func(i int) string { return fmt.Sprintf("shop.%02d", i) }
	var alerts []object
	for i := range 4 {
		alerts = append(alerts, event("segment.starved", tag(i), longNode, object{"waiting": 3}))
	}
	for i := range 46 {
		alerts = append(alerts, event("segment.refill_failed", tag(i), longNode, object{"error": "the store is unavailable: " + strings.Repeat("x", 200), "left": 9}))
	}
	heard := time.Now().Add(-10 * time.Second)
	s.answer("feed", feed(
		object{"kind": "mysql", "harm": "refused", "since": heard, "lasts_s": 100, "types": []string{"leaf.segment.starved", "leaf.segment.refill_failed"},
			"nodes": []string{"gen_1", longNode}, "keys": 30, "dry": 4, "count": 120, "alerts": alerts},
		object{"kind": "leaf.node.lost", "harm": "reduced", "since": heard, "types": []string{"leaf.node.lost"}, "nodes": []string{"gen_2"}, "keys": 1, "dry": 0, "count": 1,
			"alerts": []object{event("node.lost", "gen_2", "gen_2", object{"last_heard_ms": heard.UnixMilli(), "until_ms": time.Now().UnixMilli()})}},
	))
	s.overview(func(n int, nodes []bus.State) object {
		var ending []object
		for i := range 30 {
			tag, left := tag(i), int64(max(0, i-3)*100)
			if i == 29 {
				tag, left = longTag, 100_000
			}
			ending = append(ending, object{"tag": tag, "buffers": []object{at("gen_1", buffer(tag, "failing", hugeID, left)), at(longNode, buffer(tag, "failing", 1, left))}})
		}
		for i := range nodes {
			nodes[i].Counts.Errors["store_unavailable"], nodes[i].Counts.Errors["overloaded"] = int64(n)*7, 3
			nodes[i].Counts.Failing = 30
			nodes[i].Readiness = bus.Readiness{Missing: []string{"store"}, Reasons: map[string]string{"store": strings.Repeat("y", 200)}, Segment: true}
		}
		return object{"ending": ending, "lost": []object{{"node": "gen_2", "last_heard_ms": heard.UnixMilli(), "silent_ms": 10_000, "until_ms": time.Now().UnixMilli()}}}
	}, "gen_1", longNode)
}

const (
	verdict = `document.querySelector('#verdict')`
	boxes   = `document.querySelectorAll('#alerts > li')`
)

// The page says what is wrong, the worst first, in few boxes, and that all is well again. It fits its window.
func TestStates(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.overview(well, "gen_1", longNode)
	tab := look(t, browser.New(t), s.url, chromedp.EmulateViewport(1280, 900), media("light"))
	green := verdict + `.textContent === '2 generators, all ready' && ` + verdict + `.dataset.state === 'good' && ` + boxes + `.length === 0 &&
		!document.querySelector('.main-total.failing') && document.querySelectorAll('#generators .state.good').length === 2`
	tab.Await("that all is well", green)
	tab.Await("a rate", `Number(document.querySelector('#rate-ids').textContent.replaceAll(',', '')) > 1000`)

	night(s)
	tab.Await("refusals, in red", `/^Callers are refused, [\d.]+\/s$/.test(document.querySelector('#verdict [data-state="bad"]')?.textContent)`)
	if color := browser.Eval[string](tab, `getComputedStyle(document.querySelector('#verdict [data-state="bad"]')).color`); color != "rgb(180, 35, 24)" {
		t.Errorf("the refusals are %s", color)
	}
	tab.Await("the lost generator, in amber", `document.querySelector('#verdict [data-state="warn"]')?.textContent.startsWith('gen_2 lost, last heard 10 s ago')`)
	tab.Await("nothing green", `!document.querySelector('#verdict [data-state="good"], #generators .state.good') && document.querySelector('.main-total.failing')`)
	tab.Await("a box for each cause", boxes+`.length === 2 && `+boxes+`[0].dataset.kind === 'mysql' && `+boxes+`[1].dataset.kind === 'leaf.node.lost'`)
	for _, text := range []string{"MySQL is unavailable", "30 tags, 2 generators: gen_1, " + longNode, "the store is unavailable: ", "No new IDs come from the database. " +
		"4 tags have too few IDs left, and callers are refused. 26 tags live on the IDs in memory, the first for 1 min 40 s."} {
		tab.Await(text, says("#alerts > li", text))
	}
	tab.Await("a word for those who do not see", `document.querySelector('#announcer[aria-live]').textContent.includes('MySQL is unavailable')`)
	if links := browser.Eval[[]string](tab, `[...document.querySelectorAll('#alerts a')].map((a) => a.href.split('#')[1])`); !slices.Equal(links,
		[]string{"segmentstarved", "segmentrefill_failed", "nodelost"}) {
		t.Errorf("the boxes lead to %v of the runbook", links)
	}
	tab.Do(chromedp.Click(chromedp.CSS(`#alerts [data-kind="mysql"] summary`)))
	tab.Await("some of its alerts", `document.querySelectorAll('#alerts [data-kind="mysql"] .member').length === 50`)
	tab.Await("the number of the others", says("#alerts > li", "70 more alerts"))
	tab.Await("what ends soonest", `((ends) => ends.length === 10 && ends.every((end, i) => end.querySelector(i < 4 ? '.bad' : '.warn, .bad')) &&
		ends.slice(0, 4).every((end) => end.innerText.startsWith('empty')) && ends[4].dataset.tag === 'shop.04')([...document.querySelectorAll('#ends > li')])`)
	tab.Await("how many end", says("#ends-note", "The first 10 of 30 tags"))
	tab.Await("the worst first", `((tops) => tops.every((top, i) => i === 0 || top > tops[i - 1]))(['alerts', 'ends', 'generators', 'tags', 'workers-section', 'events']
		.map((id) => document.getElementById(id).getBoundingClientRect().top))`)
	open(tab, longTag)
	for _, width := range []int64{360, 390, 641, 900, 1180, 1181, 1280, 1440} {
		window := chromedp.EmulateViewport(width, 900)
		if width < 400 {
			window = chromedp.EmulateViewport(width, 844, chromedp.EmulateMobile)
		}
		tab.Do(window)
		// A phone widens its window to what does not fit, so its width is looked at, too.
		if found := browser.Eval[[]string](tab, fmt.Sprintf(`(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth && Math.round(visualViewport.width) === %d ? [] :
			[scrollWidth + ' > ' + clientWidth, ...[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > clientWidth)
			.map((e) => e.outerHTML.slice(0, 200))])(document.documentElement)`, width)); len(found) > 0 {
			t.Errorf("%d wide, the page is wider than its window: %q", width, found)
		}
		if cut := browser.Eval[[]string](tab, `[...document.querySelectorAll('#tags .segment')].flatMap((segment) => [...segment.querySelectorAll('.label, .range > :not(.unseen)')]
			.filter((text) => text.getBoundingClientRect().width > segment.getBoundingClientRect().width).map((text) => text.textContent))`); len(cut) > 0 {
			t.Errorf("%d wide, the page cuts off %q", width, cut)
		}
		tab.Picture(fmt.Sprintf("night-%d", width))
	}
	light := browser.Eval[string](tab, `getComputedStyle(document.body).backgroundColor`)
	tab.Do(media("dark"))
	tab.Await("a dark page", fmt.Sprintf(`getComputedStyle(document.body).backgroundColor !== %q`, light))
	tab.Picture("night-dark")

	// The generator behind the page goes and comes back. What was last known stays, and nobody loads the page again.
	tab.Do(chromedp.Evaluate[chromedp.Void](`window.kept = true`))
	tab.Expect("net::ERR_")
	for _, path := range []string{"overview", "feed", "tags", "workers"} {
		s.answer(path, nil)
	}
	tab.Await("a word of the silence", `/^No answer from the generator for \d+ s$/.test(`+verdict+`.textContent) && `+boxes+`.length === 2`)
	s.answer("feed", feed())
	s.overview(func(n int, nodes []bus.State) object {
		nodes[1].Counts.Overloads = int64(n)
		return nil
	}, "gen_1", longNode)
	tab.Await("an overload, in amber", `/^1 of 2 generators is overloaded; 2 generators, all ready$/.test(`+verdict+`.textContent) && `+verdict+`.dataset.state === 'warn' &&
		document.querySelector('.main-total.failing')`)
	s.answer("feed", feed(object{"kind": "leaf.segment.starved", "gone": true, "harm": "refused", "since": time.Now(), "types": []string{"leaf.segment.starved"},
		"nodes": []string{"gen_2"}, "keys": 1, "dry": 1, "count": 1, "alerts": []object{event("segment.starved", "order", "gen_2", object{"waiting": 1})}}))
	tab.Await("that the generator of an alert is gone", `document.querySelector('#alerts .chip')?.checkVisibility()`)
	s.answer("feed", feed())
	s.overview(well, "gen_1", longNode)
	tab.Await("that all is well again", green+` && window.kept`)
	own(t, tab, s.url)
}

// Of many tags the page has those that are looked for, a page at a time. Text from outside is text. The keyboard stays where
// it is while answers come.
func TestPage(t *testing.T) {
	t.Parallel()
	const hostile = `<img src=x onerror=alert(1)><script>document.title='x'</script>`
	s := newSite(t)
	s.answer("tags", func(r *http.Request, _ int) any {
		q, after := r.URL.Query().Get("q"), r.URL.Query().Get("after")
		page, next := []object{}, ""
		for i := range 300 {
			tag := fmt.Sprintf("tag.%03d", i)
			if i == 299 {
				tag = "zz" + hostile
			}
			if tag <= after || !strings.Contains(tag, q) {
				continue
			}
			if len(page) == 50 {
				next = page[49]["tag"].(string)
				break
			}
			page = append(page, object{"tag": tag, "stored": true, "max_id": "9223372036854000001", "step": 1000, "description": hostile, "problem": hostile, "buffers": []any{}})
		}
		return object{"tags": page, "next": next, "problem": hostile}
	})
	var events []object
	for _, kind := range []string{"segment.starved", "clock.backwards", "tag.created", "<b>new"} {
		events = append(events, event(kind, hostile, hostile, object{"description": hostile, "error": hostile}))
	}
	all := feed(object{"kind": "jetstream", "harm": "ends", "since": time.Now(), "types": []string{"leaf.segment.refill_failed"}, "nodes": []string{hostile},
		"keys": 1, "dry": 0, "count": 1, "alerts": []object{event("segment.refill_failed", hostile, hostile, object{"error": hostile})}})
	all["events"], all["problem"] = events, hostile
	s.answer("feed", all)
	taken := []int64{2000, 1000, 100} // a second
	s.overview(func(n int, nodes []bus.State) object {
		for i, tag := range []string{"first", "second", hostile} {
			b := buffer(tag, "ok", hugeID, 1500)
			b.Taken, b.Error = int64(n)*taken[i], hostile
			nodes[0].Busiest = append(nodes[0].Busiest, b)
		}
		nodes[0].Readiness = bus.Readiness{Missing: []string{hostile}, Reasons: map[string]string{hostile: hostile}}
		nodes[0].Version, nodes[0].Address = hostile, hostile
		return object{"problem": hostile}
	}, hostile)
	tab := look(t, browser.New(t), s.url, chromedp.EmulateViewport(1280, 900),
		browser.Send(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}))
	tab.Await("the zone of times", says("#zone", "Times in UTC+05:30, Asia/"))
	open(tab, hostile)
	for _, place := range []string{"#verdict", "#overview-problem", "#alerts", "#alerts-problem", "#generators", "#tags", "#tags-problem", "#events", "#tags .buffer .error"} {
		tab.Await("the text in "+place, says(place, hostile))
	}

	// The row that has the focus keeps it when it moves up, and what is typed stays.
	tab.Await("the order of rates", `[...document.querySelectorAll('#tags [data-tag]')].slice(0, 2).map((row) => row.dataset.tag).join() === 'first,second'`)
	tab.Do(chromedp.Evaluate[chromedp.Void](`window.row = document.querySelector('#tags [data-tag="second"]'); row.querySelector('summary').focus()`))
	s.mu.Lock()
	taken[1] = 1_000_000
	s.mu.Unlock()
	tab.Await("another order, and the focus", `document.querySelector('#tags [data-tag]') === row && document.activeElement === row.querySelector('summary')`)

	names := `[...document.querySelectorAll('#tags [data-tag]')].map((row) => row.dataset.tag).join()`
	typeIn(tab, "#search", "tag.")
	for _, move := range []struct {
		button      string
		first, last int
		note        string
	}{
		{"", 0, 49, "The first 50 tags with “tag.”; more on the next page"},
		{"#tags-next", 50, 99, "Tags 51 to 100 with “tag.”, from tag.050; more on the next page"},
		{"#tags-previous", 0, 49, "The first 50 tags with “tag.”; more on the next page"},
	} {
		if move.button != "" {
			tab.Do(chromedp.Click(chromedp.CSS(move.button)))
		}
		var want []string
		for i := move.first; i <= move.last; i++ {
			want = append(want, fmt.Sprintf("tag.%03d", i))
		}
		tab.Await(move.note, fmt.Sprintf(`%s === %q && document.querySelector('#tags-note').textContent === %q`, names, strings.Join(want, ","), move.note))
	}
	typeIn(tab, "#search", "<img")
	tab.Await("the hostile tag", names+fmt.Sprintf(` === %q`, "zz"+hostile))
	open(tab, "zz"+hostile)
	tab.Await("its description", says("#tags .tag-description", hostile))
	tab.Do(chromedp.KeyEvent(kb.ArrowLeft), chromedp.Evaluate[chromedp.Void](`window.before = performance.getEntriesByType('resource').length`))
	tab.Await("further answers", `performance.getEntriesByType('resource').length > before + 6`)
	if at := browser.Eval[string](tab, `document.activeElement.id + " " + document.activeElement.value + " " + document.activeElement.selectionStart`); at != "search <img 3" {
		t.Errorf("the keyboard is at %q", at)
	}

	// Whoever has only the keyboard sees where it is, and everything has a name.
	for i := 0; browser.Eval[string](tab, `document.activeElement.tagName`) != "BODY" || i == 0; i++ {
		if i == 60 {
			t.Fatal("60 tabulators do not lead round the page")
		}
		tab.Do(chromedp.KeyEvent(kb.Tab))
		if unseen := browser.Eval[string](tab, `((at) => at === document.body || [at, ...(at.labels?.[0]?.querySelectorAll('*') ?? [])].map((e) => getComputedStyle(e))
			.some((style) => style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== 'none') ? '' : at.outerHTML)(document.activeElement)`); unseen != "" {
			t.Errorf("nobody sees that this has the focus: %s", unseen)
		}
	}
	if nameless := browser.Eval[[]string](tab, `[...document.querySelectorAll('input, button, a, table')].filter((e) => !(e.labels?.length || e.innerText || e.ariaLabel ||
		e.hasAttribute('aria-labelledby'))).map((e) => e.outerHTML)`); len(nameless) > 0 {
		t.Errorf("these have no name: %q", nameless)
	}
	if found := browser.Eval[int](tab, `document.querySelectorAll('main img, main script, main b').length`); found > 0 {
		t.Errorf("%d elements came of text", found)
	}
	if title := browser.Eval[string](tab, "document.title"); title != "(1) Leafbus" {
		t.Errorf("the title is %q", title)
	}
	own(t, tab, s.url)
}
