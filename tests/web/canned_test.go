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

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/tests/kit/browser"
)

// Names without a place to break them, as long as they may be, and the longest IDs.
var (
	longNode = strings.Repeat("generator_", 6)
	longTag  = strings.Repeat("long-tag", 16)
)

const hugeID = 9223372036854000001

// held is a buffer of a generator.
type held struct {
	Node string `json:"node"`
	admin.Buffer
}

// night is 3 a.m.: a generator is lost, the database is dead, four of thirty tags have no IDs left.
func night(s *site) {
	tag := func(i int) string { return fmt.Sprintf("shop.%02d", i) }
	why := "the store is unavailable: " + strings.Repeat("x", 200)
	heard := time.Now().Add(-10 * time.Second).UnixMilli()
	s.wrong(
		cause("database.unavailable", admin.Critical, admin.Finding{Keys: []string{longTag, tag(1), tag(2)}, Count: 30,
			Message: why, Do: "bring the database back"}, "gen_1", longNode),
		cause("node.lost", admin.Problem, admin.Finding{Keys: []string{"gen_2"}, Count: 1, Message: "its heartbeats stopped",
			Do: "start it again"}, "gen_1"))
	s.answer("busiest", func(_ *http.Request, n int) any {
		var tags []object
		for i := range 10 {
			tag, left := tag(i), int64(max(0, i-3)*100)
			if i == 9 {
				tag, left = longTag, 100_000
			}
			tags = append(tags, object{"tag": tag, "unknown": true, "buffers": []held{
				{"gen_1", buffer(tag, "failing", hugeID, left, n*10)}, {longNode, buffer(tag, "failing", 1, left, n*10)},
			}})
		}
		return object{"tags": tags, "problem": why}
	})
	s.overview(func(n int, nodes []admin.State) object {
		for i := range nodes {
			nodes[i].Counts.Errors["store_unavailable"], nodes[i].Counts.Errors["overloaded"] = int64(n)*7, 3
			nodes[i].Counts.Failing = 30
			nodes[i].Readiness = admin.Readiness{Missing: []string{"store"}, Reasons: map[string]string{"store": why}}
			nodes[i].Segment = true
		}
		lost := admin.LostNode{Node: "gen_2", LastHeardMS: heard, SilentMS: 10_000, UntilMS: heard}
		return object{"lost": []admin.LostNode{lost}}
	}, "gen_1", longNode)
}

// The page says what is wrong, the worst first, in few boxes, and that all is well again. It fits its window.
func states(t *testing.T, b *browser.Browser) {
	s := newSite(t)
	s.overview(well, "gen_1", longNode)
	tab := look(b.Open(t), s.url, chromedp.EmulateViewport(1280, 900), media("light"))
	const verdict = `look.one('#verdict')`
	const green = verdict + `.textContent === '2 generators, all ready' && ` + verdict + `.dataset.state === 'good' &&
		look.all('#generators .state.good').length === 2 && !look.one('#alerts > li, .main-total.failing')`
	tab.Await("that all is well", green)
	tab.Await("a rate", `look.number('#rate-ids') > 0`)

	night(s)
	const red = `look.one('#verdict [data-state="bad"]')`
	tab.Await("refusals, in red", `/^Callers are refused, [\d.]+\/s$/.test(`+red+`?.textContent)`)
	tab.Await("their colour", red+` && getComputedStyle(`+red+`).color === 'rgb(180, 35, 24)'`)
	says(tab, `#verdict [data-state="warn"]`, "gen_2 lost, last heard 10 s ago")
	tab.Await("nothing green", `look.one('.main-total.failing') &&
		!look.one('#verdict [data-state="good"], #generators .state.good')`)
	tab.Await("a box for each cause, the worst first",
		`look.all('#alerts > li').map(({ dataset }) => dataset.kind).join() === 'database.unavailable,node.lost'`)
	for _, text := range []string{
		"Database unavailable", "2 generators: gen_1, " + longNode, "and 27 more: the store is unavailable: ",
		"What to do: bring the database back",
	} {
		says(tab, "#alerts > li", text)
	}
	tab.Await("a word for those who do not see",
		`look.one('#announcer[aria-live]').textContent.includes('Database unavailable')`)
	links := browser.Eval[[]string](tab, `look.all('#alerts a').map((a) => a.href.split('#')[1])`)
	if !slices.Equal(links, []string{"databaseunavailable", "nodelost"}) {
		t.Errorf("the boxes lead to %v of the runbook", links)
	}
	tab.Do(chromedp.Click(chromedp.CSS(`#alerts summary`)))
	tab.Await("what each generator says", `look.all('#alerts [data-kind="database.unavailable"] .member').length === 2`)
	tab.Await("what ends soonest", `look.all('#tags > details').length === 10 && look.all('#tags > details').every((tag, i) =>
		i < 4 ? tag.querySelector('.bad')?.textContent === 'empty' : tag.querySelector('.warn, .bad'))`)
	says(tab, "#tags > details:nth-child(5)", "shop.04")
	says(tab, "#tags-note", "10 tags: first those that get no new IDs")
	says(tab, "#tags-problem", "the store is unavailable")
	tab.Await("the worst first", `look.inOrder('#alerts', '#generators', '#tags', '#events')`)
	open(tab, longTag)
	for _, width := range []int64{360, 390, 641, 900, 1180, 1181, 1280, 1440} {
		window := chromedp.EmulateViewport(width, 900)
		if width < 400 {
			window = chromedp.EmulateViewport(width, 844, chromedp.EmulateMobile)
		}
		tab.Do(window)
		if found := browser.Eval[[]string](tab, fmt.Sprintf(`look.wide(%d)`, width)); len(found) > 0 {
			t.Errorf("%d wide, the page is wider than its window: %q", width, found)
		}
		if found := browser.Eval[[]string](tab, `look.cut()`); len(found) > 0 {
			t.Errorf("%d wide, the page cuts off %q", width, found)
		}
		tab.Picture(fmt.Sprintf("night-%d", width))
	}
	light := browser.Eval[string](tab, `getComputedStyle(document.body).backgroundColor`)
	tab.Do(media("dark"))
	tab.Await("a dark page", fmt.Sprintf(`getComputedStyle(document.body).backgroundColor !== %q`, light))
	tab.Picture("night-dark")

	// The generator behind the page goes and comes back. What was last known stays, and nobody loads the page again.
	tab.Expect("net::ERR_")
	for _, question := range questions {
		s.answer(question, nil)
	}
	tab.Await("a word of the silence", `look.all('#alerts > li').length === 2 &&
		/^No answer from the generator for \d+ s$/.test(`+verdict+`.textContent)`)
	s.wrong()
	s.answer("busiest", object{"tags": []any{}})
	s.overview(func(n int, nodes []admin.State) object {
		nodes[1].Counts.Overloads = int64(n)
		return nil
	}, "gen_1", longNode)
	says(tab, `#verdict[data-state="warn"]`, "1 of 2 generators is overloaded; 2 generators, all ready")
	tab.Await("that not all is well", `look.one('.main-total.failing')`)
	s.overview(well, "gen_1", longNode)
	tab.Await("that all is well again", green)
	asksOnly(t, tab, s.url)
}

const hostile = `<img src=x onerror=alert(1)><script>document.title='x'</script>`

// manyTags answers with a page of 300 tags. The last one has a hostile name.
func manyTags(r *http.Request, _ int) any {
	q, after := r.URL.Query().Get("q"), r.URL.Query().Get("after")
	found, next := []object{}, ""
	for i := range 300 {
		tag := fmt.Sprintf("tag.%03d", i)
		if i == 299 {
			tag = "zz" + hostile
		}
		if tag <= after || !strings.Contains(tag, q) {
			continue
		}
		if len(found) == 50 {
			next = found[49]["tag"].(string)
			break
		}
		found = append(found, object{"tag": tag, "stored": true, "max_id": fmt.Sprint(hugeID), "step": 1000,
			"description": hostile, "problem": hostile, "buffers": []any{}})
	}
	return object{"tags": found, "next": next, "problem": hostile}
}

// Of many tags the page has those that are looked for, a page at a time. Text from outside is text. The keyboard
// stays where it is while answers come.
func page(t *testing.T, b *browser.Browser) {
	s := newSite(t)
	s.answer("tags", manyTags)
	body := object{"description": hostile, "error": hostile}
	s.events = nil
	for _, kind := range []string{"segment.starved", "clock.backwards", "tag.created", "<b>new"} {
		s.events = append(s.events, event(kind, hostile, hostile, body))
	}
	s.problem = hostile
	s.wrong(cause("records.unavailable", admin.Critical, admin.Finding{Keys: []string{hostile}, Count: 1, Message: hostile,
		Do: hostile}, hostile))
	order := []string{"first", "second", hostile}
	s.answer("busiest", func(_ *http.Request, n int) any {
		var tags []object
		for _, tag := range order {
			b := buffer(tag, "ok", hugeID, 1500, n*100)
			b.Error = hostile
			tags = append(tags, object{"tag": tag, "stored": true, "buffers": []held{{hostile, b}}})
		}
		return object{"tags": tags, "problem": hostile}
	})
	s.overview(func(_ int, nodes []admin.State) object {
		nodes[0].Readiness = admin.Readiness{Missing: []string{hostile}, Reasons: map[string]string{hostile: hostile}}
		nodes[0].Version, nodes[0].Address = hostile, hostile
		return object{"problem": hostile}
	}, hostile)
	tab := look(b.Open(t), s.url, chromedp.EmulateViewport(1280, 900),
		browser.Send(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}))
	says(tab, "#zone", "Times in UTC+05:30, Asia/")
	open(tab, hostile)
	for _, place := range []string{"#verdict", "#overview-problem", "#alerts", "#events-problem", "#generators",
		"#tags", "#tags-problem", "#tags .buffer .error", "#events"} {
		says(tab, place, hostile)
	}

	// The row that has the focus keeps it when it moves up.
	tab.Await("the order of rates", `look.tags().startsWith('first,second,')`)
	tab.Do(chromedp.Evaluate[chromedp.Void](`look.row('second').querySelector('summary').focus()`))
	s.mu.Lock()
	order[0], order[1] = "second", "first"
	s.mu.Unlock()
	tab.Await("another order", `look.tags().startsWith('second,first,')`)
	if !browser.Eval[bool](tab, `document.activeElement === look.row('second').querySelector('summary')`) {
		t.Error("the row that moved has lost the keyboard")
	}

	typeIn(tab, "#search", "tag.")
	for _, turn := range []struct {
		click string
		first int
		note  string
	}{
		{"", 0, "50 tags with “tag.”; more on the next page"},
		{"#tags-next", 50, "50 tags with “tag.”, from tag.050; more on the next page"},
		{"#tags-previous", 0, "50 tags with “tag.”; more on the next page"},
	} {
		if turn.click != "" {
			tab.Do(chromedp.Click(chromedp.CSS(turn.click)))
		}
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprintf("tag.%03d", turn.first+i))
		}
		tab.Await(turn.note, fmt.Sprintf(`look.tags() === %q`, strings.Join(want, ",")))
		says(tab, "#tags-note", turn.note)
	}
	typeIn(tab, "#search", "<img")
	tab.Await("the hostile tag", fmt.Sprintf(`look.tags() === %q`, "zz"+hostile))
	open(tab, "zz"+hostile)
	says(tab, "#tags .tag-description", hostile)
	const asked = `performance.getEntriesByType('resource').length`
	tab.Do(chromedp.KeyEvent(kb.ArrowLeft))
	tab.Await("further answers", fmt.Sprintf(`%s > %d`, asked, browser.Eval[int](tab, asked)+6))
	if at := browser.Eval[string](tab, `look.keyboard()`); at != "search <img 3" {
		t.Errorf("the keyboard is at %q", at)
	}

	// A user who has only the keyboard sees where it is, and everything has a name.
	for i := 0; i == 0 || browser.Eval[string](tab, `document.activeElement.tagName`) != "BODY"; i++ {
		if i == 60 {
			t.Fatal("60 tabulators do not lead round the page")
		}
		tab.Do(chromedp.KeyEvent(kb.Tab))
		if unseen := browser.Eval[string](tab, `look.unseen()`); unseen != "" {
			t.Errorf("nobody sees that this has the keyboard: %s", unseen)
		}
	}
	if nameless := browser.Eval[[]string](tab, `look.nameless()`); len(nameless) > 0 {
		t.Errorf("these have no name: %q", nameless)
	}
	if found := browser.Eval[int](tab, `look.all('main img, main script, main b').length`); found > 0 {
		t.Errorf("%d elements came of text", found)
	}
	if title := browser.Eval[string](tab, "document.title"); title != "(1) Leafbus" {
		t.Errorf("the title is %q", title)
	}
	asksOnly(t, tab, s.url)
}
