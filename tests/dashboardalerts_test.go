package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/tests/browser"
)

// tellStarved tells that a generator has no IDs of a tag, as it would.
func tellStarved(t *testing.T, js jetstream.JetStream, node, tag string) {
	t.Helper()
	msg := nats.NewMsg("leaf.events.alert.segment.starved." + tag)
	id := nats.NewInbox()
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": id, "Nats-Msg-Id": id, "ce-source": "/leaf/" + node, "ce-type": "leaf.segment.starved",
		"ce-subject": tag, "ce-time": time.Now().UTC().Format(time.RFC3339Nano), "ce-datacontenttype": "application/json",
	} {
		msg.Header[name] = []string{value}
	}
	msg.Data = fmt.Appendf(nil, `{"node":%q,"tag":%q,"waiting":1}`, node, tag)
	_, err := js.PublishMsg(t.Context(), msg)
	must(t, err)
}

// An alert of a generator that was killed worries nobody for ever: it is marked, and it is over
// when the generator runs again.
func showsGone(t *testing.T, b *browser.Browser) {
	server := newNATS(t)
	one := serve(t, t.TempDir(), "-s", server.ClientURL(), "--node", "one", "--tag", "order", "--http", "127.0.0.1:0")
	two := serve(t, t.TempDir(), "-s", server.ClientURL(), "--node", "two")
	tab := look(t, b, one)
	answered(tab, "one", "two")
	tellStarved(t, jetStream(t, connect(t, server.ClientURL())), "two", "order")
	const alert = `document.querySelector('#alerts-section [data-node="two"][data-key="order"]')`
	const verdict = `document.querySelector('#verdict').textContent`
	const marked = alert + `?.closest('.cause')?.querySelector('.chip')?.checkVisibility()`
	tab.Await("the alert", alert+`?.matches(':not(.over)') && !`+marked)
	tab.Await("its verdict", verdict+` === '2 generators, all ready; 1 open alert'`)
	two.kill()
	tab.Await("that its generator is gone", marked)
	tab.Await("the verdict", `/^two lost, last heard \d+ s ago; 1 generator, ready; 1 open alert$/.test(`+verdict+`) && document.querySelector('#verdict').dataset.state === 'warn'`)
	const lost = `document.querySelector('#alerts [data-kind="leaf.node.lost"]')`
	tab.Await("the alert that it is lost", lost+` && !`+lost+`.querySelector('.chip').checkVisibility() && /^two: last heard \d+ s ago/.test(`+lost+`.querySelector('.alert-text').textContent)`)
	const row = `document.querySelector('#generators [data-node="two"]')`
	tab.Await("its row", row+`?.querySelector('.state.warn')?.textContent === 'lost' && `+row+`.textContent.includes('last heard ')`)
	two.again(t)
	tab.Await("its end", alert+`?.matches('.over') && !`+marked)
	tab.Await("the verdict on all", verdict+` === '2 generators, all ready'`)
}

// Many alerts of one kind are one box. It counts them all, and shows some to those who open it.
func showsManyAlerts(t *testing.T, b *browser.Browser) {
	g := withHTTP(t)
	js := jetStream(t, connect(t, g.url))
	tab := look(t, b, g, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	const many, shown = 130, 50
	for i := range many {
		tellStarved(t, js, g.node, fmt.Sprintf("tag.%03d", i))
	}
	const box = `document.querySelector('#alerts > li:only-child')`
	tab.Await("one box", fmt.Sprintf(`%s?.querySelector('summary').textContent === '%d tags, 1 generator: %s'`, box, many, g.node))
	if browser.Eval[bool](tab, box+`.querySelector('.member').checkVisibility()`) {
		t.Error("the alerts are shown before anybody asks")
	}
	tab.Do(chromedp.Click(chromedp.CSS("#alerts summary")))
	tab.Await("some of them", fmt.Sprintf(`%s.querySelectorAll('.member').length === %d && %s.querySelector('.member').checkVisibility() && %s.innerText.includes('%d more alerts')`,
		box, shown, box, box, many-shown))
}
