package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A record that no generator can have written stops its tag, and no other. What the message tells the operator to
// do ends that.
func TestDamagedClaim(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"no JSON":     "garbage",
		"zero":        `{"end":"0"}`,
		"negative":    `{"end":"-5"}`,
		"too large":   `{"end":"9223372036854775808"}`,
		"a number":    `{"end":5}`,
		"a field":     `{"end":"5001","extra":true}`,
		"two records": `{"end":"5001"}{"end":"1"}`,
		"deleted":     "", // the marker of a deletion
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedgered(t)
			l.join([]string{"one"}, "--tag", "order:10", "--tag", "other:10", "--max-step", "10", "--max-wait", "1s")
			highest := l.take("order", 1)
			l.take("other", 1)
			kv, err := l.js.KeyValue(t.Context(), bus.BucketLedger)
			must(t, err)
			if damage == "" {
				must(t, kv.Delete(t.Context(), "tag.order"))
			} else {
				_, err = kv.PutString(t.Context(), "tag.order", damage)
				must(t, err)
			}

			message := l.refusedWith("order", 503, bus.StoreUnavailable)
			for _, text := range []string{"order", "damaged", `'{"end":"N"}'`, bus.BucketLedger, "tag.order"} {
				if !strings.Contains(message, text) {
					t.Errorf("the message does not say %q: %s", text, message)
				}
			}
			t.Log(message)
			for range 50 {
				l.take("other", 1)
			}
			for range 5 { // it stays so
				refused(t, ask(t, l.nc, "leaf.segment.order", ""), 503, bus.StoreUnavailable)
			}
			testkit.Eventually(t, "an alert", func() bool { // a slow start may have raised one before
				return strings.Contains(lastEvent[refillFailed](t, l.js, "leaf.events.alert.segment.refill_failed.order").Error, "damaged")
			})

			end := max(highest, 100_000)
			_, err = kv.PutString(t.Context(), "tag.order", fmt.Sprintf(`{"end":"%d"}`, end))
			must(t, err)
			testkit.Eventually(t, "an ID above the repaired record", func() bool {
				msg := ask(t, l.nc, "leaf.segment.order", "")
				if len(msg.Header) > 0 {
					refused(t, msg, 503, bus.StoreUnavailable)
					return false
				}
				ranges, err := bus.ParseReply(msg.Data)
				must(t, err)
				if id := ranges[0].First; id < end {
					t.Fatalf("ID %d, all below %d are in use", id, end)
				}
				return true
			})
		})
	}
}

// badSettings are those with which JetStream could lose a record of the ledger by itself.
var badSettings = map[string]func(*jetstream.StreamConfig){
	"an age limit":   func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
	"per-key TTLs":   func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
	"memory storage": func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
	"a size limit":   func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardOld, 1<<20 },
}

// A bucket that could lose records is refused at the start, in one sentence.
func TestUnfitLedgerAtTheStart(t *testing.T) {
	t.Parallel()
	for name, set := range badSettings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedgered(t)
			cfg := jetstream.StreamConfig{
				Name: "KV_" + bus.BucketLedger, Subjects: []string{"$KV." + bus.BucketLedger + ".>"}, MaxMsgsPerSubject: 1,
			}
			set(&cfg)
			_, err := l.js.CreateStream(t.Context(), cfg)
			must(t, err)
			g := start(t, command(t, t.TempDir(), nil, []string{"serve", "--http", "", "-s", l.url, "--mysql", l.dsn, "--tag", "order"}))
			if status := g.wait(patience); status != 1 {
				t.Errorf("exit status %d, want 1", status)
			}
			last := ""
			for line := range strings.Lines(g.stderr.String()) {
				if strings.HasPrefix(line, "leaf: ") {
					last = line
				}
			}
			if !strings.Contains(last, "bucket "+bus.BucketLedger+" has "+name) {
				t.Errorf("the last sentence is %q", last)
			}
			t.Log(strings.TrimSpace(last))
		})
	}
}

// A bucket that somebody made by hand would let its records be purged, and a purge would look as if nothing had ever
// been claimed. The first generator forbids that.
func TestLedgerMadeByHand(t *testing.T) {
	t.Parallel()
	l := newLedgered(t)
	kv, err := l.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bus.BucketLedger})
	must(t, err)
	one := l.join([]string{"one"}, "--tag", "order:100")["one"]
	highest := l.take("order", 1)
	stream, err := l.js.Stream(t.Context(), "KV_"+bus.BucketLedger)
	must(t, err)
	for what, err := range map[string]error{
		"purge the bucket": stream.Purge(t.Context()), "purge a record": kv.Purge(t.Context(), "tag.order"),
		"delete a message": stream.DeleteMsg(t.Context(), stream.CachedInfo().State.LastSeq),
	} {
		if err == nil {
			t.Errorf("the server lets anyone %s", what)
		}
	}
	one.stop()
	l.forget()
	l.join([]string{"two"})
	l.take("order", highest+1)
}

// An operator gives the bucket a setting with which records vanish, while generators run. Nothing is claimed until
// it is set back.
func TestUnfitLedgerAtRunTime(t *testing.T) {
	t.Parallel()
	l := newLedgered(t)
	g := l.join([]string{"one"}, "--tag", "order:10", "--max-step", "10", "--max-wait", "1s")["one"]
	l.take("order", 1)
	change := func(age time.Duration) {
		stream, err := l.js.Stream(t.Context(), "KV_"+bus.BucketLedger)
		must(t, err)
		cfg := stream.CachedInfo().Config
		cfg.MaxAge, cfg.Duplicates = age, 0
		_, err = l.js.UpdateStream(t.Context(), cfg)
		must(t, err)
	}
	change(time.Hour)
	testkit.Eventually(t, "the ledger to be refused", func() bool {
		return lacks(stateOf(t, bus.NewClient(l.nc)), "ledger", "an age limit")
	})
	message := l.refusedWith("order", 503, bus.StoreUnavailable)
	if !strings.Contains(message, "an age limit") || !strings.Contains(message, bus.BucketLedger) {
		t.Errorf("the message does not say what is wrong: %s", message)
	}
	t.Log(message)
	maxID := maxIDOf(t, l.db, "order")
	for range 10 {
		refused(t, ask(t, l.nc, "leaf.segment.order", ""), 503, bus.StoreUnavailable)
	}
	if now := maxIDOf(t, l.db, "order"); now != maxID {
		t.Errorf("max_id went from %d to %d while nothing could be claimed", maxID, now)
	}
	lastEvent[map[string]any](t, l.js, "leaf.events.alert.ledger.unavailable.one")

	change(0)
	testkit.Eventually(t, "the generator to be ready", func() bool { return stateOf(t, bus.NewClient(l.nc)).Ready })
	l.take("order", maxID)
	lastEvent[map[string]any](t, l.js, "leaf.events.info.ledger.recovered.one")
	g.stop()
}

// The bucket is deleted by hand under load, also together with the installation's record. It is made and filled
// again, and service goes on. The server refuses to purge it.
func TestLedgerDeletedUnderLoad(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string][]string{
		"the ledger":                           {bus.BucketLedger},
		"the ledger and the installation":      {bus.BucketLedger, bus.BucketInstallation},
		"the installation, and not the ledger": {bus.BucketInstallation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedgered(t)
			nodes := []string{"one", "two", "three"}
			generators := l.join(nodes, "--tag", "order:50", "--max-step", "100")
			record, err := l.js.KeyValue(t.Context(), bus.BucketInstallation)
			must(t, err)
			have, err := record.Get(t.Context(), "installation")
			must(t, err)
			load := startLoad(t, hasty("order", bus.StoreUnavailable, bus.TimedOut), l.url, l.url)
			load.more(500)
			stream, err := l.js.Stream(t.Context(), "KV_"+bus.BucketLedger)
			must(t, err)
			if err := stream.Purge(t.Context()); err == nil {
				t.Error("the server purges the ledger")
			}
			if err := stream.DeleteMsg(t.Context(), stream.CachedInfo().State.LastSeq); err == nil {
				t.Error("the server deletes a record of the ledger")
			}
			for range 3 {
				for _, bucket := range lost {
					must(t, l.js.DeleteKeyValue(t.Context(), bucket))
				}
				if lost[len(lost)-1] == bus.BucketInstallation {
					restore(t, l.js, have.Value())
				}
				highest := load.highest.Load()
				testkit.Eventually(t, "IDs that were reserved since", func() bool {
					load.checkIDs()
					return load.highest.Load() > highest+3000
				})
			}
			if end := l.end("order"); end <= load.highest.Load()-3000 {
				t.Errorf("the ledger ends at %d, %d was handed out", end, load.highest.Load())
			}
			load.report()
			replaced := countEvents(t, l.nc, "leaf.events.alert.ledger.replaced.>")
			if lost[0] == bus.BucketLedger && len(replaced) == 0 {
				t.Error("no alert says that the ledger was lost")
			}
			t.Log("alerts that the ledger was made anew:", replaced)
			for _, g := range generators {
				g.stop()
			}
		})
	}
}

// restore writes the installation's record back, as from a backup.
func restore(t *testing.T, js jetstream.JetStream, record []byte) {
	t.Helper()
	testkit.Eventually(t, "the installation's record to be back", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bus.BucketInstallation, Storage: jetstream.FileStorage})
		if err == nil {
			_, err = kv.Put(ctx, "installation", record)
		}
		return err == nil
	})
}
