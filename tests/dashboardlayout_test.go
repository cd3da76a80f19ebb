package tests

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/leafbus/leafbus/tests/browser"
)

// showsLongNumbers wants all digits of the longest IDs there can be, at any width.
func showsLongNumbers(t *testing.T, b *browser.Browser) {
	g := withHTTP(t)
	nc := connect(t, g.url)
	granted(t, ask(t, nc, "leaf.admin.tags.create", `{"tag":"huge","max_id":"9223372036854000000","step":1000}`))
	tab := look(t, b, g)
	for range 2 { // at the beginning of a segment, and at its end
		granted(t, ask(t, nc, "leaf.segment.huge", "490"))
		_, text := settled(t, nc, "huge", 1)
		open(tab, "huge")
		tab.Await(text, heldOnPage("huge")+" === '"+text+"'")
		for _, width := range []int64{360, 390, 641, 900, 1081, 1100, 1280, 1281, 1440} {
			tab.Do(chromedp.EmulateViewport(width, 900))
			const cut = `[...document.querySelectorAll('#tags .segment')].flatMap((segment) => [...segment.querySelectorAll('.label, .range > :not(.unseen)')]
				.filter((text) => text.getBoundingClientRect().width > segment.getBoundingClientRect().width).map((text) => text.textContent))`
			if found := browser.Eval[[]string](tab, cut); len(found) > 0 {
				t.Errorf("%d wide, the page cuts off %q", width, found)
			}
		}
	}
}

// A new installation whose database does not answer is told in words for people, which
// have the width that they need.
func showsNewInstallation(t *testing.T, b *browser.Browser) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	closed.Close()
	g := embedLacking(t, "segments,snowflakes", "--http", "127.0.0.1:0", "--node", strings.Repeat("generator_", 6), "--mysql", fmt.Sprintf("root@tcp(%s)/%s", closed.Addr(), strings.Repeat("database", 8)), "--max-wait", "100ms")
	nc := connect(t, g.url)
	ask(t, nc, "leaf.segment.order", "")
	fetch(t, "GET", g.http+"/api/segment/get/bad..tag")
	fetch(t, "GET", g.http+"/api/segment/get/order?count=2000000000")
	fetch(t, "GET", g.http+"/api/snowflake/get/any")
	tab := look(t, b, g)
	open(tab, "order")
	tab.Await("the tag", `document.querySelector('#tags [data-tag="order"] [data-node]')`)
	if words := browser.Eval[string](tab, `document.querySelector('#tags').innerText`); strings.Contains(words, "step 0") || !strings.Contains(words, "step not known") {
		t.Errorf("the step is not known, and the page says %q", words)
	}
	tab.Await("words for people about the stream", `((words) => words.includes('LEAF_EVENTS') && words.includes('No events are stored yet') && !words.includes('API error'))(document.querySelector('#alerts-problem').textContent)`)

	tab.Await("reasons for refusals", `document.querySelector('#generators [data-name="Refused/s"]').innerText.split(',').length > 1`)
	for _, width := range []int64{390, 900, 1180, 1181, 1280, 1440} {
		tab.Do(chromedp.EmulateViewport(width, 900))
		if needs := browser.Eval[int64](tab, `document.documentElement.scrollWidth`); needs > width {
			t.Errorf("%d wide, the page needs %d", width, needs)
		}
		if width > 1180 { // a table
			continue
		}
		for _, cell := range []string{"State", "Refused/s"} {
			const part = `((cell) => cell.getBoundingClientRect().width / cell.parentElement.getBoundingClientRect().width)(document.querySelector('#generators [data-name=%q]'))`
			if found := browser.Eval[float64](tab, fmt.Sprintf(part, cell)); found < 0.9 {
				t.Errorf("%d wide, %s has %.2f of the card", width, cell, found)
			}
		}
	}
}
