package tests

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// followEvents runs leaf events.
func followEvents(t *testing.T, url string, args ...string) *process {
	t.Helper()
	return start(t, command(t, t.TempDir(), nil, append([]string{"events", "-s", url, "--json"}, args...)))
}

// keysOf returns how often a leaf events told of each tag or other key.
func keysOf(t *testing.T, p *process) map[string]int {
	t.Helper()
	out := p.stdout.String()
	count := make(map[string]int)
	for line := range strings.Lines(out[:strings.LastIndexByte(out, '\n')+1]) {
		count[parse[cloudEvent](t, []byte(line)).Subject]++
	}
	return count
}

// interrupt ends a leaf events as its user does.
func interrupt(t *testing.T, p *process) {
	t.Helper()
	p.signal(syscall.SIGINT)
	if status := p.wait(patience); status != 0 {
		t.Errorf("exit status %d after an interrupt: %s", status, p.stderr.String())
	}
}

// A follower that is killed goes on where it was: nothing is missing, and what
// it was done with does not come again.
func TestEventsDurable(t *testing.T) {
	t.Parallel()
	g := embed(t)
	nc := connect(t, g.url)
	js := jetStream(t, nc)
	eventConsumer(t, js, bus.EventSubjects) // the stream is there
	created := 0
	create := func(count int) {
		t.Helper()
		for range count {
			created++
			granted(t, ask(t, nc, bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":"t%d"}`, created)))
		}
	}
	first := followEvents(t, g.url, "--durable", "pager")
	var consumer jetstream.Consumer
	testkit.Eventually(t, "the consumer", func() (there bool) {
		var err error
		consumer, err = js.Consumer(t.Context(), bus.EventStream, "pager")
		return err == nil
	})
	// What it dies at comes again soon.
	cfg := consumer.CachedInfo().Config
	cfg.AckWait = time.Second
	if _, err := js.UpdateConsumer(t.Context(), bus.EventStream, cfg); err != nil {
		t.Fatal(err)
	}
	create(5)
	testkit.Eventually(t, "some events", func() bool { create(1); return len(keysOf(t, first)) > 5 })
	create(5)
	first.kill()
	create(20)
	leaf(t, "events", "--durable", "pager", "--alerts", "-s", g.url).want(t, 1, `this loop ["leaf.events.alert.>"]`, "nats consumer rm LEAF_EVENTS pager")

	second := followEvents(t, g.url, "--durable", "pager", "--since", "1h") // which is for the first time
	testkit.Eventually(t, "all events", func() bool {
		before, after := keysOf(t, first), keysOf(t, second)
		for n := 1; n <= created; n++ {
			if tag := fmt.Sprint("t", n); before[tag]+after[tag] == 0 {
				return false
			}
		}
		return true
	})
	if again := keysOf(t, second); again["t1"] > 0 || again[g.node] > 0 {
		t.Errorf("it began anew: %v", again)
	}
	// Else one may be on its way when it ends, and would come again.
	testkit.Eventually(t, "the last acknowledgement", func() bool {
		about, err := consumer.Info(t.Context())
		must(t, err)
		return about.NumAckPending == 0 && about.NumPending == 0
	})
	interrupt(t, second)
	third := followEvents(t, g.url, "--durable", "pager")
	create(1)
	testkit.Eventually(t, "the last event", func() bool { return keysOf(t, third)[fmt.Sprint("t", created)] == 1 })
	if all := keysOf(t, third); len(all) != 1 {
		t.Errorf("after a clean end %v came, want the last alone", all)
	}
	interrupt(t, third)

	for _, c := range []struct{ want, args string }{
		{"live", "--live --since 1h"}, {"live", "--live --durable d"},
		{"--durable", "--durable a.b"}, {"--durable", "--durable="},
	} {
		leaf(t, append([]string{"events", "-s", g.url}, strings.Fields(c.args)...)...).want(t, 2, c.want)
	}
}

// Alerts alone, live too, whatever else happens.
func TestEventsAlertsLive(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:10", "--max-step", "10", "--max-wait", "2s")
	nc := connect(t, g.url)
	js := jetStream(t, nc)
	eventConsumer(t, js, bus.EventSubjects)
	all, alerts := followEvents(t, g.url, "--live"), followEvents(t, g.url, "--live", "--alerts")
	tags := 0
	testkit.Eventually(t, "an event live", func() bool {
		tags++
		granted(t, ask(t, nc, bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":"new.t%d","step":10}`, tags)))
		return len(keysOf(t, all)) > 0
	})
	if keysOf(t, all)[g.node] > 0 {
		t.Error("live events began with old ones")
	}
	// Episodes begin and end until one is heard.
	testkit.Eventually(t, "an alert live", func() bool {
		breakStore(t, js, true)
		testkit.Eventually(t, "a refusal", func() bool { return len(ask(t, nc, "leaf.segment.order", "5").Header) > 0 })
		breakStore(t, js, false)
		testkit.Eventually(t, "an ID", func() bool { return len(ask(t, nc, "leaf.segment.order", "5").Header) == 0 })
		return keysOf(t, alerts)["order"] > 0
	})
	for line := range strings.Lines(alerts.stdout.String()) {
		if e := parse[cloudEvent](t, []byte(line)); e.Severity != "alert" {
			t.Errorf("with --alerts: %+v", e)
		}
	}
	interrupt(t, all)
	interrupt(t, alerts)
	if said := all.stderr.String(); said != "" {
		t.Errorf("it says %q", said)
	}
}

// Where NATS keeps nothing, events are followed live, unless kept ones are
// asked for.
func TestEventsWithoutJetStream(t *testing.T) {
	t.Parallel()
	url := plainNATS(t)
	nc := connect(t, url)
	event := nats.NewMsg("leaf.events.alert.segment.starved.order")
	event.Header.Set("ce-time", time.Now().Format(time.RFC3339Nano))
	event.Data = []byte(`{"node":"n","tag":"order","waiting":1}`)
	odd := nats.NewMsg("leaf.events.alert.segment.starved.order")
	for _, args := range [][]string{nil, {"--live"}} {
		p := followEvents(t, url, args...)
		testkit.Eventually(t, "an event, and what is none", func() bool {
			must(t, nc.PublishMsg(odd))
			must(t, nc.PublishMsg(event))
			return keysOf(t, p)["order"] > 0 && strings.Contains(p.stderr.String(), "is not an event")
		})
		interrupt(t, p)
		said := p.stderr.String()
		if lines := strings.Count(said, "this NATS has no JetStream"); lines != 1-len(args) {
			t.Errorf("with %v it says %d times that there is no JetStream: %q", args, lines, said)
		}
	}
	for _, args := range [][]string{{"--since", "1h"}, {"--durable", "d"}, {"--js-domain", "x"}} {
		leaf(t, append([]string{"events", "-s", url}, args...)...).want(t, 1, "this NATS has no JetStream", "--live")
	}
}
