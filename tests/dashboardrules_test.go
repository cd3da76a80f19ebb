package tests

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/browser"
)

// What an operator sets for a tag is on the page: the rules themselves, that a tag is paused, and that it comes to its limit.
func showsRules(t *testing.T, b *browser.Browser) {
	g := withHTTP(t, "--tag", "order:1000")
	nc := connect(t, g.url)
	filled(t, nc, "order", 1, "200") // 2,000 are reserved
	tab := look(t, b, g)
	open(tab, "order")
	tab.Await("a tag without rules", `document.querySelector('#tags [data-tag="order"] .tag-rules').hidden`)

	leafOK(t, "tag", "set", "order", "--quota", "5000/s", "--burst", "20000", "--outlast", "1h30m", "--max-step", "40000", "--limit", "2100", "-s", g.url)
	tab.Await("the alert", `document.querySelector('#alerts [data-kind="leaf.segment.ending"] .alert-text')?.innerText.includes(
		'80 % of the IDs up to 2,100 are reserved, 100 are not')`)
	leafOK(t, "tag", "pause", "order", "-s", g.url)
	refused(t, ask(t, nc, "leaf.segment.order", ""), 403, bus.Paused)
	const all = "quota 5,000/s, burst 20,000, outlast 1h30m, largest step 40,000, limit 2,100"
	for _, view := range []string{"busiest", "all"} { // the list shows the same
		tab.Do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector('[name="tags-view"][value=%q]').click()`, view)))
		open(tab, "order")
		tab.Await("the rules among "+view+" tags", fmt.Sprintf(`document.querySelector('#tags [data-tag="order"] .tag-rules')?.innerText === 'paused, %s'`, all))
		tab.Await("the state among "+view+" tags", `document.querySelector('#tags [data-tag="order"] .buffer .state').textContent === 'paused'`)
	}
	tab.Await("the event", `[...document.querySelectorAll('#events [data-type="leaf.tag.updated"][data-key="order"]')].some((e) => e.innerText.includes('paused, quota 5,000/s'))`)
	picture(t, tab, "rules")

	leafOK(t, "tag", "resume", "order", "-s", g.url)
	leafOK(t, "tag", "set", "order", "--limit", "none", "-s", g.url)
	tab.Await("the other rules", `document.querySelector('#tags [data-tag="order"] .tag-rules').innerText === 'quota 5,000/s, burst 20,000, outlast 1h30m, largest step 40,000'`)
	tab.Await("the end of the alert", `document.querySelector('#past [data-type="leaf.segment.ending"][data-key="order"]')`)
	tab.Await("a state that is fine", `document.querySelector('#tags [data-tag="order"] .buffer .state').textContent === 'ok'`)
}
