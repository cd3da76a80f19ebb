package tests

import (
	"fmt"
	"strings"
	"sync/atomic"
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

// While NATS refuses callers because more requests come than a generator can answer, nothing is green, though no refusal is counted.
func showsOverload(t *testing.T, b *browser.Browser) {
	g := withHTTP(t)
	nc := connect(t, g.url)
	state := string(ask(t, nc, "$SRV.STATS.leaf", "").Data)
	for _, text := range []string{`"node":"` + g.node + `"`, `"overloads":0`} {
		if !strings.Contains(state, text) {
			t.Fatalf("the state has no %s: %s", text, state)
		}
	}
	var overloaded atomic.Bool
	overloads := 0
	_, err := nc.Subscribe("$SRV.STATS.leaf", func(msg *nats.Msg) { // as another generator
		if overloaded.Load() {
			overloads++
		}
		_ = msg.Respond([]byte(strings.NewReplacer(`"node":"`+g.node+`"`, `"node":"busy"`, `"overloads":0`, fmt.Sprintf(`"overloads":%d`, overloads)).Replace(state)))
	})
	must(t, err)
	tab := look(t, b, g)
	answered(tab, "busy")
	const (
		verdict = `document.querySelector('#verdict')`
		states  = `[...document.querySelectorAll('#generators [data-name="State"]')].map((cell) => cell.innerText.trim()).sort().join()`
		dimmed  = `document.querySelector('.main-total.failing')`
	)
	well := verdict + `.textContent === '2 generators, all ready' && ` + verdict + `.dataset.state === 'good' && ` + states + ` === 'ready,ready' && !` + dimmed
	tab.Await("that all is well", well)
	overloaded.Store(true)
	tab.Await("the overload, in amber", verdict+`.textContent === '1 of 2 generators is overloaded; 2 generators, all ready' && `+verdict+`.dataset.state === 'warn' && `+
		states+` === 'overloaded,ready' && document.querySelector('#generators [data-node="busy"] .state.warn') && `+dimmed)
	overloaded.Store(false)
	tab.Await("its end", well)
}
