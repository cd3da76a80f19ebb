package kvstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

func openLedger(tb testing.TB, cfg Config) *LedgerBucket {
	tb.Helper()
	b, err := OpenLedger(testkit.Context(tb), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	seeded, err := b.Seeded(testkit.Context(tb))
	if err == nil && !seeded {
		err = b.SetSeeded(testkit.Context(tb))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// ledgerKV is the bucket as an operator with the nats CLI has it.
func ledgerKV(tb testing.TB, s *embedded.Server) jetstream.KeyValue {
	tb.Helper()
	kv, err := newConfig(tb, s).JS.KeyValue(tb.Context(), bus.BucketLedger)
	if err != nil {
		tb.Fatal(err)
	}
	return kv
}

// raise writes an end as a claim does.
func raise(tb testing.TB, l allocator.Ledger, tag string, end int64) {
	tb.Helper()
	if _, err := allocator.Raise(testkit.Context(tb), l, tag, end, 0); err != nil {
		tb.Fatal(err)
	}
}

func TestLedgerConformance(t *testing.T) {
	t.Parallel()
	allocatortest.RunLedger(t, func(tb testing.TB) allocatortest.LedgerBackend {
		s := natskit.Start(tb)
		return allocatortest.LedgerBackend{
			Open: func(tb testing.TB) allocator.Ledger {
				l := NewLedger()
				l.Use(openLedger(tb, newConfig(tb, s)))
				return l
			},
			Delete: func(tb testing.TB, tag string) {
				if err := ledgerKV(tb, s).Delete(tb.Context(), ledgerKey+tag); err != nil {
					tb.Fatal(err)
				}
			},
		}
	})
}

// A record that no generator wrote refuses its tag, and no other one. Nothing is written over it.
func TestDamagedEntry(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	b := openLedger(t, newConfig(t, s))
	raise(t, b, "mail", 41)
	kv := ledgerKV(t, s)
	for _, record := range []string{
		"", "{", "null", "{}", `"5"`, `{"end":"0"}`, `{"end":"-5"}`, `{"end":"1e3"}`, `{"end":5}`, `{"end":"9223372036854775808"}`,
		`{"end":"5","more":1}`, `{"end":"5"} {}`, `{"end":"5"}x`, `{"end":"5","floor":"6"}`, `{"end":"5","floor":"-1"}`, `{"floor":"5"}`,
	} {
		revision, err := kv.PutString(t.Context(), ledgerKey+"order", record)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := b.Read(t.Context(), "order"); !errors.Is(err, allocator.ErrDamaged) || !strings.Contains(err.Error(), `'{"end":"N"}'`) {
			t.Errorf("record %q gave %+v, %v", record, e, err)
		}
		if _, err := allocator.Raise(t.Context(), b, "order", 900, 0); !errors.Is(err, allocator.ErrDamaged) {
			t.Errorf("record %q was raised: %v", record, err)
		}
		if _, err := b.Write(t.Context(), "order", allocator.Entry{End: 900}); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("record %q was taken for none: %v", record, err)
		}
		if now, err := kv.Get(t.Context(), ledgerKey+"order"); err != nil || now.Revision() != revision {
			t.Errorf("record %q was replaced by %v, %v", record, now, err)
		}
		if e, err := b.Read(t.Context(), "mail"); err != nil || e.End != 41 {
			t.Errorf("another tag: %+v, %v", e, err)
		}
		found := 0
		if err := b.Each(t.Context(), func(string, allocator.Entry) { found++ }); err != nil || found != 1 {
			t.Errorf("Each found %d records, %v", found, err)
		}
	}
	if _, err := kv.PutString(t.Context(), ledgerKey+"order", `{"end":"5000"}`); err != nil { // as the message says
		t.Fatal(err)
	}
	if e, err := b.Read(t.Context(), "order"); err != nil || e.End != 5000 {
		t.Errorf("repaired: %+v, %v", e, err)
	}
}

// Nobody can remove what was claimed without a trace. JetStream denies it.
func TestLedgerDeniesRemovals(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	b := openLedger(t, newConfig(t, s))
	raise(t, b, "order", 41)
	kv := ledgerKV(t, s)
	for name, remove := range map[string]func() error{
		"a purge of the stream": func() error { return b.stream.Purge(t.Context()) },
		"a purge of a key":      func() error { return kv.Purge(t.Context(), ledgerKey+"order") },
		"a removed message":     func() error { return b.stream.DeleteMsg(t.Context(), 1) },
		"an erased message":     func() error { return b.stream.SecureDeleteMsg(t.Context(), 1) },
	} {
		if err := remove(); err == nil {
			t.Errorf("%s succeeded", name)
		}
	}
	if e, err := b.Read(t.Context(), "order"); err != nil || e.End != 41 {
		t.Errorf("then the record is %+v, %v", e, err)
	}
}

// A setting that loses records is refused also if an operator makes it later.
func TestLedgerChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"an age limit": func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"per-key TTLs": func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
		"a size limit": func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardOld, 1<<20 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newConfig(t, natskit.Start(t))
			settings := openLedger(t, cfg).stream.CachedInfo().Config
			change(&settings)
			if _, err := cfg.JS.UpdateStream(t.Context(), settings); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenLedger(t.Context(), cfg); !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), name) {
				t.Errorf("OpenLedger: %v", err)
			}
		})
	}
}

// Each finds every record, and ends, while all of them are rewritten all the time.
func TestEachOfBusyTags(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	b := openLedger(t, newConfig(t, s))
	const tags = 300
	for i := range tags {
		raise(t, b, fmt.Sprint("t", i), 1)
	}
	rewriteAll(t, func(ctx context.Context, i int) {
		_, _ = allocator.Raise(ctx, b, fmt.Sprint("t", i%tags), int64(i), 0)
	})
	reader := openLedger(t, newConfig(t, s))
	for range 100 {
		found := make(map[string]bool)
		if err := reader.Each(testkit.Context(t), func(tag string, _ allocator.Entry) { found[tag] = true }); err != nil {
			t.Fatal(err)
		}
		if len(found) != tags {
			t.Fatalf("%d records of %d", len(found), tags)
		}
	}
}

// Nothing is claimed before the bucket is known to be seeded, nor after it was suspended. Err says so.
func TestLedgerStates(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	b := openLedger(t, cfg)
	l := NewLedger()
	unusable := func(what, say string) {
		t.Helper()
		_, err := l.Read(t.Context(), "order")
		if !errors.Is(err, allocator.ErrUnavailable) || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: Read: %v", what, err)
		}
		if _, err := l.Write(t.Context(), "order", allocator.Entry{End: 11}); !errors.Is(err, allocator.ErrUnavailable) {
			t.Errorf("%s: Write: %v", what, err)
		}
		if err := l.Each(t.Context(), func(string, allocator.Entry) {}); !errors.Is(err, allocator.ErrUnavailable) {
			t.Errorf("%s: Each: %v", what, err)
		}
		if l.Err() == nil {
			t.Errorf("%s: Err is nil", what)
		}
	}
	unusable("new", "not ready yet")
	l.Use(b)
	raise(t, l, "order", 11)
	if l.Err() != nil {
		t.Errorf("in use: %v", l.Err())
	}
	l.Missed(errors.New("no answer"))
	if l.Err() == nil {
		t.Error("missed: Err is nil")
	}
	if e, err := l.Read(t.Context(), "order"); err != nil || e.End != 11 || l.Err() != nil {
		t.Errorf("after it was missed: %+v, %v; Err %v", e, err, l.Err())
	}
	l.Suspend(errors.New("an age limit"))
	unusable("suspended", "an age limit")
	if err := l.note(b, nil, true); err != nil || l.Err() == nil { // the answer of a call that began before
		t.Errorf("suspended, then an old answer: %v", l.Err())
	}
}

// A full disk refuses writes alone. Then nothing can be read either, so that nobody reserves a range, until a
// write has shown that the next can succeed.
func TestLedgerRefusesWrites(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	b := openLedger(t, cfg)
	l := NewLedger()
	l.Use(b)
	raise(t, l, "order", 11)
	settings := b.stream.CachedInfo().Config
	limit := func(messages int64) {
		t.Helper()
		settings.MaxMsgs = messages
		if _, err := cfg.JS.UpdateStream(t.Context(), settings); err != nil {
			t.Fatal(err)
		}
	}
	limit(1)
	for range 2 {
		if _, err := l.Write(t.Context(), "mail", allocator.Entry{End: 11}); !errors.Is(err, allocator.ErrUnavailable) {
			t.Errorf("Write: %v", err)
		}
		if e, err := l.Read(t.Context(), "mail"); !errors.Is(err, allocator.ErrUnavailable) {
			t.Errorf("Read: %+v, %v; what is read cannot be written", e, err)
		}
		if !l.Failed() || l.Err() == nil {
			t.Errorf("after a write that failed: failed %v, %v", l.Failed(), l.Err())
		}
	}
	limit(-1)
	if err := b.SetSeeded(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Use(b)
	if raise(t, l, "mail", 11); l.Err() != nil || l.Failed() {
		t.Errorf("Err after a write: %v", l.Err())
	}
}

// A bucket that was lost, or made again, is not taken for one in which nothing was claimed yet.
func TestLedgerMadeAnew(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	l := NewLedger()
	l.Use(openLedger(t, cfg))
	raise(t, l, "order", 11)
	doubted := func(what string) {
		t.Helper()
		for _, tag := range []string{"order", "new"} {
			if _, err := l.Write(testkit.Context(t), tag, allocator.Entry{End: 11}); !errors.Is(err, allocator.ErrUnavailable) {
				t.Errorf("%s: Write of %s: %v", what, tag, err)
			}
			if e, err := l.Claimed(testkit.Context(t), tag); !errors.Is(err, allocator.ErrUnavailable) {
				t.Errorf("%s: Claimed of %s: %+v, %v", what, tag, e, err)
			}
		}
		select {
		case <-l.Doubts():
		default:
			t.Errorf("%s: nobody looks at it", what)
		}
	}
	if err := cfg.JS.DeleteKeyValue(t.Context(), bus.BucketLedger); err != nil {
		t.Fatal(err)
	}
	doubted("lost")
	anew, err := OpenLedger(t.Context(), cfg)
	for removing(err) {
		anew, err = OpenLedger(t.Context(), cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	doubted("made anew")
	l.Use(anew)
	doubted("not seeded")
	if err := anew.SetSeeded(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := l.Read(t.Context(), "order"); err != nil || e != (allocator.Entry{}) {
		t.Errorf("Read of the new bucket in use: %+v, %v", e, err)
	}
	if e, err := l.Claimed(t.Context(), "order"); err != nil || e != (allocator.Entry{}) {
		t.Errorf("Claimed of the new bucket in use: %+v, %v", e, err)
	}
}
