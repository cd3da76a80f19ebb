package tests

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/browser"
)

// A strict tag has nothing in memory. The page shows how its writes serve the requests, and no alarm about that. It shows the domain of an
// opaque tag.
func showsStrict(t *testing.T, b *browser.Browser) {
	g := withHTTP(t, "--tag", "order:1000")
	nc := connect(t, g.url)
	leafOK(t, "tag", "add", "invoice", "--order", "strict", "--description", "numbers of invoices", "-s", g.url)
	leafOK(t, "tag", "add", "receipt", "--order", "strict", "-s", g.url) // no generator uses it
	leafOK(t, "tag", "add", "coupon", "--opaque=d12", "-s", g.url)
	granted(t, ask(t, nc, "leaf.segment.order", ""))
	tab := look(t, b, g)
	of := func(tag, what string) string { return fmt.Sprintf(`#tags [data-tag=%q] %s`, tag, what) }
	awaitFact := func(tag, list, name, want string) {
		t.Helper()
		tab.Await(fmt.Sprintf("%s of %s: %s", name, tag, want), fmt.Sprintf(`/^(%s)$/.test(%s)`, want, fact(of(tag, list), name)))
	}
	isStrict := func(tag string, strict bool) {
		t.Helper()
		tab.Await("the order of "+tag, fmt.Sprintf(`document.querySelector('%s')?.checkVisibility() === %t`, of(tag, ".chip"), strict))
	}
	isStrict("order", false)
	isStrict("receipt", true)
	tab.Await("the domain of coupon", fmt.Sprintf(`document.querySelector('%s')?.innerText === 'opaque d12'`, of("coupon", ".chip")))
	tab.Await("the event of an opaque tag", `document.querySelector('#events [data-type="leaf.tag.created"][data-key="coupon"]').innerText.includes('opaque d12')`)
	tab.Await("the event of its creation", `document.querySelector('#events [data-type="leaf.tag.created"][data-key="invoice"]').innerText.includes('order strict')`)

	// Many callers at once: several of their requests share a write.
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = nc.Request("leaf.segment.invoice", nil, 5*time.Second) // a failure shows below
				}
			}
		})
	}
	isStrict("invoice", true)
	open(tab, "invoice")
	tab.Await("its rate", fmt.Sprintf(`/^[1-9][\d,.]*$/.test(document.querySelector('%s').textContent)`, of("invoice", `[data-name="IDs/s"] .figure-value`)))
	awaitFact("invoice", ".writes", "Order", "strict")
	awaitFact("invoice", ".writes", "Requests per write", `([2-9]|1\d)(\.\d)?`)
	awaitFact("invoice", ".writes", "Mean wait", `\d+(\.\d)? ms`)
	tab.Await("requests that wait", fmt.Sprintf(`Number(%s) > 0`, fact(of("invoice", ".writes"), "Waiting")))
	tab.Await("its last write", fmt.Sprintf(`/^written /.test(document.querySelector('%s').textContent)`, of("invoice", ".refilled")))
	tab.Await("its state", fmt.Sprintf(`document.querySelector('%s').textContent === 'ok'`, of("invoice", ".state")))
	if warned := browser.Eval[int](tab, `document.querySelectorAll('#waiting.warn, #generators [data-name="Waiting"] .warn').length`); warned > 0 {
		t.Error("the page warns of requests that wait for a write, as they always do")
	}
	picture(t, tab, "strict")
	tab.Do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	picture(t, tab, "strict-phone")
	if needs := browser.Eval[int64](tab, `document.documentElement.scrollWidth`); needs > 390 {
		t.Errorf("390 wide, the page needs %d", needs)
	}
	close(stop)
	callers.Wait()
	awaitFact("invoice", ".writes", "Waiting", "0")

	for _, view := range []string{"busiest", "all"} { // the list shows the same
		tab.Do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector('[name="tags-view"][value=%q]').click()`, view)))
		open(tab, "invoice")
		awaitFact("invoice", ".writes", "Order", "strict")
		words := browser.Eval[string](tab, fmt.Sprintf(`document.querySelector('%s').innerText`, of("invoice", "")))
		for _, alarm := range []string{"0 left", "empty", "not loaded", "nothing loaded", "Step", "step", "Without the store", "refilled"} {
			if strings.Contains(words, alarm) {
				t.Errorf("among %s tags the page says %q of a strict tag: %s", view, alarm, words)
			}
		}
	}
}

// A strict tag that cannot be written pages as a tag whose IDs run out: LeafIDsRunOut and LeafCannotServe look at these.
func TestMetricsOfStrictTagThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	g := serve(t, t.TempDir(), "-s", server.ClientURL(), "--http", "127.0.0.1:0", "--max-wait", "2s")
	leafOK(t, "tag", "add", "invoice", "--order", "strict", "-s", server.ClientURL())
	if p := fetch(t, "GET", g.http+"/api/segment/get/invoice"); p.status != 200 || p.header.Get(bus.HeaderOrder) != bus.OrderStrict {
		t.Fatalf("%+v", p)
	}
	server.Close()
	testkit.Eventually(t, "its alarms", func() bool {
		fetch(t, "GET", g.http+"/api/segment/get/invoice")
		metrics := fetch(t, "GET", g.http+"/metrics").body
		return strings.Contains(metrics, "\nleaf_failing_remaining_seconds 0\n") && strings.Contains(metrics, "\nleaf_serving{kind=\"segment\"} 0\n") &&
			strings.Contains(metrics, "\nleaf_tags{state=\"failing\"} 1\n")
	})
}
