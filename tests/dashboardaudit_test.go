package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/browser"
)

// grouped is an ID as the page shows it: 1,234.
func grouped(id int64) string {
	text := decimal(id)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// fact is an expression for the value that a list of facts has for a name.
func fact(list, name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('%s > div')].find((fact) => fact.querySelector('dt').textContent === %q)?.querySelector('dd').textContent`, list, name)
}

// An operator audits a tag, then everything, and asks who claimed an ID. A contradiction is named; no digit of an ID is lost.
func auditsAndTraces(t *testing.T, b *browser.Browser) {
	g := withHTTP(t, "--tag", "order:1000")
	nc := connect(t, g.url)
	const huge = int64(9223372036854000001) // no float64 has this value
	granted(t, ask(t, nc, "leaf.admin.tags.create", fmt.Sprintf(`{"tag":"huge","max_id":"%d","step":1000}`, huge)))
	granted(t, ask(t, nc, "leaf.segment.huge", "10"))
	granted(t, ask(t, nc, "leaf.segment.order", "10"))
	var audit bus.TagAudit
	for _, tag := range []string{"order", "huge"} {
		testkit.Eventually(t, "the event of the claim", func() bool {
			audit = reply[bus.TagAudit](t, ask(t, nc, "leaf.admin.audit", fmt.Sprintf(`{"tag":%q}`, tag)))
			return audit.Events > 0
		})
	}
	tab := look(t, b, g)

	t.Log("a tag, by the link at the tag")
	open(tab, "order")
	for range 2 { // the second click is on the same link
		tab.Do(chromedp.Click(chromedp.CSS(`#tags [data-tag="order"] .tag-audit`)))
		tab.Await("its audit", `document.querySelector('#audit-note').textContent === 'No contradictions in the audit of order'`)
		tab.Await("that the audit is in view", `((box) => box.top >= 0 && box.top < innerHeight)(document.querySelector('#audit-title').getBoundingClientRect())`)
		tab.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector('#audit-note').textContent = ''`))
	}
	tab.Await("how far it is claimed", fact("#audit-facts", "Claimed below")+" === '1,001'")
	tab.Await("the share of the generator", fmt.Sprintf(`/^\s*100\.0\s%%$/.test(document.querySelector('#audit-shares [data-key=%q] [data-name="Share"]').innerText)`, g.node))
	tab.Await("the last claim", fmt.Sprintf(`%s.startsWith('1 – 1,000 by %s')`, fact("#audit-facts", "Last claim"), g.node))

	t.Log("a tag with long IDs, by its name")
	typeIn(tab, "#audit-tag", "huge"+kb.Enter)
	tab.Await("its end", fmt.Sprintf(`%s === %q`, fact("#audit-facts", "Claimed below"), grouped(int64(audit.End))))
	tab.Await("its first ID", fmt.Sprintf(`%s === %q`, fact("#audit-facts", "Events from ID"), grouped(huge)))

	t.Log("traces")
	traces := func(tag string, id int64, words ...string) {
		t.Helper()
		typeIn(tab, "#trace-tag", tag)
		typeIn(tab, "#trace-id", decimal(id)+kb.Enter)
		for _, text := range append(words, grouped(id)) {
			tab.Await(text, fmt.Sprintf(`document.querySelector('#trace-note').textContent.includes(%q)`, text))
		}
	}
	traces("order", 7, "claimed by "+g.node, "1 to 1000")
	traces("huge", huge+2, "claimed by "+g.node)
	tab.Await("its range", fmt.Sprintf(`document.querySelector('#trace-claims [data-name="Range"]').innerText === '%s – %s'`, grouped(huge), grouped(huge+999)))
	traces("order", 5000, "not claimed yet")
	var snowflake int64
	fmt.Sscan(string(ask(t, nc, "leaf.snowflake", "").Data), &snowflake)
	traces("", snowflake, "held by "+g.node)
	typeIn(tab, "#trace-id", "12 monkeys"+kb.Enter)
	tab.Await("that it is no ID", `document.querySelector('#trace-note[data-state="bad"]').textContent.includes('up to 19 digits')`)

	t.Log("contradictions")
	const forger = `<b>forger</b>`
	forgeRefill(t, jetStream(t, nc), "order", forger, 1, 500)
	typeIn(tab, "#audit-tag", "order"+kb.Enter)
	const red = `document.querySelector('#contradictions [data-kind="overlap"] .error')`
	tab.Await("the contradiction", red+`?.textContent.includes('`+forger+`')`)
	tab.Await("its verdict", `document.querySelector('#audit-verdict.bad').textContent === '1 contradiction'`)
	if colour := browser.Eval[string](tab, `getComputedStyle(`+red+`).color`); colour != "rgb(180, 35, 24)" {
		t.Errorf("the contradiction is %s", colour)
	}
	traces("order", 7, "claimed 2 times")

	tab.Do(chromedp.Focus(chromedp.CSS("#audit-all")), chromedp.KeyEvent(kb.Enter))
	tab.Await("the audit of everything", `document.querySelector('#audit-note').textContent === '1 contradiction in the audit of 2 tags and 1 worker'`)
	tab.Await("its contradiction", red+`?.textContent.includes('`+forger+`')`)
	tab.Await("the tag first", `document.querySelector('#audit-tags [data-key]').dataset.key === 'order'`)
	tab.Await("the worker", fmt.Sprintf(`document.querySelector('#audit-workers [data-key] [data-name="Generator"]').innerText === %q`, g.node))
	picture(t, tab, "audit")
	for _, width := range []int64{360, 641, 900, 1280, 1401} {
		tab.Do(chromedp.EmulateViewport(width, 900))
		if needs := browser.Eval[int64](tab, `document.documentElement.scrollWidth`); needs > width {
			t.Errorf("%d wide, the page needs %d", width, needs)
		}
		if width == 360 {
			picture(t, tab, "audit-narrow")
		}
	}

	t.Log("what is wrong")
	tab.Expect("404", "400")
	typeIn(tab, "#audit-tag", "none"+kb.Enter)
	tab.Await("that the tag is unknown", `document.querySelector('#audit-problem:not([hidden])')?.textContent.includes('none')`)
	if browser.Eval[bool](tab, `document.querySelector('#audit-result').checkVisibility()`) {
		t.Error("the audit from before is still shown")
	}
	script := `<img src=x onerror=alert(1)>`
	typeIn(tab, "#audit-tag", script+kb.Enter)
	tab.Await("that it is no tag", `document.querySelector('#audit-problem:not([hidden])')?.textContent.includes('tag')`)
	tab.Do(chromedp.Navigate(g.http + "/#audit=" + strings.Repeat("%3Cimg%20src=x%3E%", 2)))
	tab.Await("that this is none either", `document.querySelector('#audit-problem:not([hidden])')?.textContent.includes('tag')`)
	if found := browser.Eval[int](tab, `document.querySelectorAll('main img, main script, main b').length`); found > 0 {
		t.Errorf("%d elements came of text", found)
	}
}
