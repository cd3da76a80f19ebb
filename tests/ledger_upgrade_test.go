package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// before makes an installation what the version before the ledger left: no bucket, and a record that does not
// name it. Everything that knows how far a tag was knows it of one tag alone. It returns those ends.
func (l *ledgered) before(g *generator) (ends map[string]int64) {
	l.t.Helper()
	ends = map[string]int64{"idle": 5001, "deleted": 7001, "moved": 9001, "event": 12_001, "seen": 15_001, "marked": 20_001}
	for _, tag := range []string{"idle", "moved", "event", "seen", "marked", "fresh"} {
		execute(l.t, l.db, fmt.Sprintf("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('%s', 1, 100)", tag))
	}
	execute(l.t, l.db, "UPDATE leaf_alloc SET max_id = 5001 WHERE biz_tag = 'idle'",
		"INSERT INTO leaf_mark (biz_tag, max_id) VALUES ('deleted', 7001)",
		"INSERT INTO leaf_mark (biz_tag, floor) VALUES ('moved', 9001)")
	l.event("event", 12_000, "")
	l.event("seen", 13_000, "15001")
	marks, err := allocator.OpenMarks(filepath.Join(g.folder, "marks"))
	must(l.t, err)
	must(l.t, marks.Record("marked", 20_001))
	must(l.t, marks.Close())

	must(l.t, l.js.DeleteKeyValue(l.t.Context(), bus.BucketLedger))
	kv, err := l.js.KeyValue(l.t.Context(), bus.BucketInstallation)
	must(l.t, err)
	entry, err := kv.Get(l.t.Context(), "installation")
	must(l.t, err)
	var record map[string]any
	must(l.t, json.Unmarshal(entry.Value(), &record))
	delete(record, "ledger")
	text, err := json.Marshal(record)
	must(l.t, err)
	_, err = kv.Put(l.t.Context(), "installation", text)
	must(l.t, err)
	return ends
}

// event publishes a refill event as older generators did.
func (l *ledgered) event(tag string, last int64, seen string) {
	l.t.Helper()
	subject := "leaf.events.info.segment.refill." + tag
	msg := nats.NewMsg(subject)
	msg.Data = fmt.Appendf(nil, `{"node":"old","tag":%q,"first":"%d","last":"%d","step":100,"cause":"demand","elapsed_ms":1}`, tag, last-99, last)
	if seen != "" {
		msg.Header.Set("Leaf-Seen", seen)
	}
	_, err := l.js.PublishMsg(l.t.Context(), msg)
	must(l.t, err)
}

// A generator of this version takes over what an older one left. Whatever knew how far a tag was: from then on
// the ledger knows it, when the database, the events and the marks have forgotten.
func TestUpgradeFillsTheLedger(t *testing.T) {
	t.Parallel()
	l := newLedgered(t)
	first := l.join([]string{"one"})["one"]
	eventConsumer(t, l.js, bus.EventSubjects) // the stream is there
	first.stop()
	ends := l.before(first)

	second := first.again(t, "--mysql", l.dsn, "--node", "one")
	testkit.Eventually(t, "the generator to be ready", func() bool { return stateOf(t, bus.NewClient(l.nc)).Ready })
	for tag, end := range ends {
		if got := l.end(tag); got != end {
			t.Errorf("the ledger of %s ends at %d, want %d", tag, got, end)
		}
	}
	if n := len(allEvents[map[string]any](t, l.js, "leaf.events.alert.>")); n != 0 {
		t.Errorf("%d alerts at an upgrade", n)
	}
	second.stop()

	l.forget()
	must(t, os.RemoveAll(first.folder))
	stream, err := l.js.Stream(t.Context(), bus.EventStream)
	must(t, err)
	must(t, stream.Purge(t.Context()))
	third := first.again(t, "--mysql", l.dsn, "--node", "two")
	leafOK(t, "tag", "add", "deleted", "--step", "100", "-s", l.url)
	for tag, end := range ends {
		l.take(tag, end)
	}
	l.take("fresh", 1)
	third.stop()
}

// older is heard as a generator of a version that claims nothing, until the returned function is called.
func (l *ledgered) older(node string) (stop func()) {
	l.t.Helper()
	installation := ownerOfDatabase(l.t, l.dsn)
	pings, err := l.nc.Subscribe("$SRV.PING.leaf", func(msg *nats.Msg) {
		_ = msg.Respond(fmt.Appendf(nil, `{"name":"leaf","id":"p","version":"0.0.1","metadata":{"node":%q}}`, node))
	})
	must(l.t, err)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(100 * time.Millisecond)
		defer again.Stop()
		for n := 1; ; n++ {
			_ = l.nc.Publish("leaf.internal.presence", fmt.Appendf(nil, // a lost one is followed by others
				`{"node":%q,"id":"run-of-%s","segment":false,"snowflake":false,"unix_ms":%d,"number":%d,"installation":%q}`,
				node, node, time.Now().UnixMilli(), n, installation))
			select {
			case <-ended:
				return
			case <-again.C:
			}
		}
	}()
	stop = func() {
		must(l.t, pings.Unsubscribe())
		close(ended)
		<-done
	}
	l.t.Cleanup(func() {
		select {
		case <-ended:
		default:
			stop()
		}
	})
	return stop
}

// A generator that is started beside one of an older version waits, fills nothing, and says which one to stop: the
// old one claims nothing of what it hands out.
func TestUpgradeWaitsForTheOldGenerator(t *testing.T) {
	t.Parallel()
	l := newLedgered(t)
	first := l.join([]string{"one"})["one"]
	eventConsumer(t, l.js, bus.EventSubjects) // the stream is there
	first.stop()
	ends := l.before(first)
	stop := l.older("ancient")

	early := serveLacking(t, "segments", first.dir, "-s", l.url, "--mysql", l.dsn, "--node", "one") // ready for snowflakes
	testkit.Eventually(t, "the log to name the old generator", func() bool {
		return strings.Contains(early.stderr.String(), "the generator ancient is of an older version")
	})
	message := l.refusedWith("idle", 503, bus.StoreUnavailable)
	if !strings.Contains(message, "ancient") || !strings.Contains(message, "stop it") {
		t.Errorf("the refusal does not say which generator to stop: %s", message)
	}
	t.Log(message)
	if got := maxIDOf(t, l.db, "idle"); got != ends["idle"] {
		t.Errorf("max_id of idle went from %d to %d", ends["idle"], got)
	}
	if kv, err := l.js.KeyValue(t.Context(), bus.BucketLedger); err == nil {
		if keys, _ := kv.Keys(t.Context()); len(keys) > 0 { // the error says that there are none
			t.Errorf("the ledger has %v while the old generator runs", keys)
		}
	}
	// It goes on meanwhile, and what it reserves last counts.
	execute(t, l.db, "UPDATE leaf_alloc SET max_id = 6001 WHERE biz_tag = 'idle'")
	stop()
	testkit.Eventually(t, "the new generator to be ready", func() bool { return stateOf(t, bus.NewClient(l.nc)).Ready })
	if end := l.end("idle"); end < 6001 {
		t.Errorf("the ledger of idle ends at %d, want at least 6001", end)
	}
	l.take("idle", 6001)
}

// A generator of an older version is started beside one of this version, which then stops to reserve until the
// old one is gone.
func TestOldGeneratorBesideANewOne(t *testing.T) {
	t.Parallel()
	l := newLedgered(t)
	l.join([]string{"one"}, "--tag", "order:100", "--max-step", "100")
	highest := l.take("order", 1)
	stop := l.older("late")
	message := l.refusedWith("order", 503, bus.StoreUnavailable) // when memory is used up
	if !strings.Contains(message, "late") || !strings.Contains(message, "stop it") {
		t.Errorf("the refusal does not say which generator to stop: %s", message)
	}
	if s := stateOf(t, bus.NewClient(l.nc)); !lacks(s, "store", "late") && !lacks(s, "ledger", "late") {
		t.Errorf("its state does not name the old generator: %+v", s.Readiness)
	}
	maxID := maxIDOf(t, l.db, "order")
	for range 10 {
		refused(t, ask(t, l.nc, "leaf.segment.order", ""), 503, bus.StoreUnavailable)
	}
	if now := maxIDOf(t, l.db, "order"); now != maxID {
		t.Errorf("max_id went from %d to %d while an old generator ran", maxID, now)
	}
	stop()
	testkit.Eventually(t, "an ID", func() bool { return len(ask(t, l.nc, "leaf.segment.order", "").Header) == 0 })
	l.take("order", highest+1)
}
