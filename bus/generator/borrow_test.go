package generator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// count is how many IDs a reply has.
func count(t *testing.T, reply string) (n int) {
	t.Helper()
	ranges, err := wire.ParseReply([]byte(reply))
	if err != nil {
		t.Error(err)
	}
	for _, r := range ranges {
		n += int(r.Len())
	}
	return n
}

// joined makes a generator of a test one of this installation.
func joined(installation string) func(*generator.Config) {
	return func(cfg *generator.Config) {
		cfg.Join = func(context.Context, func(context.Context) error) (generator.Identity, error) {
			return generator.Identity{Installation: installation}, nil
		}
	}
}

// startIn starts a generator of an installation, with records that can be taken from it alone.
func startIn(t *testing.T, s *embedded.Server, node, installation string, records allocator.Records, change func(*generator.Config)) (*running, *switched) {
	t.Helper()
	own := &switched{Records: open(records)}
	return start(t, s, node, own, func(cfg *generator.Config) {
		joined(installation)(cfg)
		if change != nil {
			change(cfg)
		}
	}), own
}

// takeAll takes so many IDs of a tag from one generator.
func (r *running) takeAll(t *testing.T, tag string, n int64) {
	t.Helper()
	if _, err := r.Take(t.Context(), tag, n); err != nil {
		t.Fatal(err)
	}
}

// pair starts two generators of one installation, of which the one named dry has no IDs of order, and full has some
// thousand. Then no store can be reached.
func pair(t *testing.T, s *embedded.Server) (dry, full *running) {
	t.Helper()
	store := memory(t, "other")
	withInvoice(t, store)
	add(t, store, allocator.Tag{Name: "order", Step: 1000})
	quick := func(cfg *generator.Config) { cfg.MaxWait = time.Second }
	dry, dryStore := startIn(t, s, "dry", "own", store, quick)
	full, fullStore := startIn(t, s, "full", "own", store, quick)
	for _, tag := range []string{"other", "invoice"} {
		dry.takeAll(t, tag, 1)
		full.takeAll(t, tag, 1)
	}
	full.takeAll(t, "order", 1)
	testkit.Eventually(t, "the two hear each other", func() bool { return dry.Hears("full") && full.Hears("dry") })
	dryStore.away.Store(true)
	fullStore.away.Store(true)
	return dry, full
}

// One generator has no IDs of a tag, and the store is away. Another one has some thousand. No request is refused, by
// NATS or by HTTP, until that one has none left either. And the dry one stays in the queue group, because it has IDs of
// another tag.
func TestDryGeneratorAsksAnother(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	dry, full := pair(t, s)
	for _, r := range []*running{dry, full} { // from then on they know that the store is away, and offer what is in memory alone
		if _, err := r.Take(t.Context(), "order", 5000); !errors.Is(err, bus.StoreUnavailable) {
			t.Fatal(err)
		}
	}
	nc := natskit.Connect(t, s)
	var ids allocatortest.Checker
	for n := 0; full.Left("order") >= 14; n++ {
		ranges, err := dry.Take(t.Context(), "order", 7) // as HTTP does
		if err != nil {
			t.Fatalf("%d are left: %v", full.Left("order"), err)
		}
		ids.Add(ranges...)
		body := []string{"7", `{"count":7}`}[n%2]
		msg, err := nc.Request("leaf.segment.order", []byte(body), testkit.Patience)
		if err != nil || bus.ReplyError(msg) != nil || msg.Header != nil {
			t.Fatalf("%d are left: %+v, %v", full.Left("order"), msg, err)
		}
		if n%2 == 0 {
			ranges, err := wire.ParseReply(msg.Data)
			if err != nil {
				t.Fatal(err)
			}
			ids.Add(ranges...)
		}
	}
	if _, err := ids.Check(); err != nil {
		t.Error(err)
	}
	if _, err := dry.Take(t.Context(), "order", full.Left("order")+1); !errors.Is(err, bus.StoreUnavailable) {
		t.Errorf("nobody has so many: %v", err)
	}
	if !dry.Wanted(generator.SegmentKind) {
		t.Error("it leaves the queue group, and has IDs of another tag")
	}
	if n := dry.State().Counts.Borrowed; n < 50 {
		t.Errorf("%d requests were answered by another generator", n)
	}
	if n := full.State().Counts.Borrowed; n != 0 {
		t.Errorf("%d requests were answered by a generator that has none", n)
	}
}

// No peer has the IDs of a request in memory. One that can refill does it, for a generator whose store is away.
func TestBorrowRefills(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t, "order", "other")
	dry, away := startIn(t, s, "dry", "own", store, nil)
	well, _ := startIn(t, s, "well", "own", store, nil)
	well.takeAll(t, "other", 1)
	testkit.Eventually(t, "the two hear each other", func() bool { return dry.Hears("well") && well.Hears("dry") })
	away.away.Store(true)
	for range 5 {
		if ranges, err := dry.Take(t.Context(), "order", 1000); err != nil {
			t.Fatal(ranges, err)
		}
	}
}

// The alert segment.starved says that callers are refused. A caller that another generator serves is not, nor is the
// generator that asks for IDs and finds none.
func TestStarvedIsRefused(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t, "order", "other")
	withInvoice(t, store)
	impatient := func(cfg *generator.Config) { cfg.MaxWait = 20 * time.Millisecond } // soon it refuses at once
	dry, away := startIn(t, s, "dry", "own", store, impatient)
	full, _ := startIn(t, s, "full", "own", store, nil)
	full.takeAll(t, "order", 1)
	full.takeAll(t, "invoice", 1)
	testkit.Eventually(t, "the two hear each other", func() bool { return dry.Hears("full") && full.Hears("dry") })
	away.away.Store(true)
	nc := natskit.Connect(t, s)
	alerts := eventsOn(t, nc)
	for range 40 {
		dry.takeAll(t, "order", 1)
	}
	for _, tag := range []string{"order", "invoice"} {
		for range 20 {
			if reply, code := ask(t, nc, wire.SubjectTake+"."+dry.RunID(), fmt.Sprintf(`{"tag":%q,"count":1,"wait_ms":1,"installation":"own"}`, tag)); code == "" {
				t.Fatalf("the dry generator has IDs of %s: %s", tag, reply)
			}
		}
	}
	full.stop()
	if ranges, err := dry.Take(t.Context(), "other", 1); err == nil {
		t.Fatalf("%v, and no generator has IDs", ranges)
	}
	testkit.Eventually(t, "the refusal raises its alert", func() bool { return len(alerts("leaf.segment.starved")) > 0 })
	if got := alerts("leaf.segment.starved"); len(got) != 1 || got[0].Key != "other" {
		t.Errorf("alerts about callers that were not refused: %+v", got)
	}
}

// One generator can claim no IDs of a strict tag, another one can: its answer says that the tag is strict.
func TestStrictTagOfAnother(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t)
	withInvoice(t, store)
	_, away := startIn(t, s, "cut off", "own", store, func(cfg *generator.Config) { cfg.MaxWait = testkit.Patience })
	away.away.Store(true)
	well, _ := startIn(t, s, "well", "own", store, nil)
	well.takeAll(t, "invoice", 1)
	nc := natskit.Connect(t, s)
	for last := int64(1); last < 40; {
		msg, err := nc.Request("leaf.segment.invoice", nil, testkit.Patience)
		if err != nil || bus.ReplyError(msg) != nil || msg.Header.Get(wire.HeaderOrder) != idspace.OrderStrict {
			t.Fatalf("%+v, %v", msg, err)
		}
		ranges, err := wire.ParseReply(msg.Data)
		if err != nil || ranges[0].First <= last {
			t.Fatalf("%v after %d, %v", ranges, last, err)
		}
		last = ranges[0].Last
	}
}

// A generator without a worker answers with the snowflakes of another one, by NATS and by HTTP.
func TestSnowflakesOfAnother(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t)
	without, _ := startIn(t, s, "without", "own", store, func(cfg *generator.Config) { cfg.Snowflake.Registry = noRegistry{} })
	nc := natskit.Connect(t, s)
	if _, code := ask(t, nc, wire.SubjectSnowflake, ""); code != "503" {
		t.Fatalf("alone it answers with %s", code)
	}
	with, _ := startIn(t, s, "with", "own", store, nil)
	testkit.Eventually(t, "it has a worker", func() bool { return with.State().Snowflake })
	testkit.Eventually(t, "that is heard", func() bool { _, err := without.Snowflakes(t.Context(), 1); return err == nil })
	for range 50 {
		if ranges, err := without.Snowflakes(t.Context(), 10); err != nil {
			t.Fatal(ranges, err)
		}
	}
}

// noRegistry is a registry that is away.
type noRegistry struct{ snowflake.Registry }

func (noRegistry) List(context.Context) ([]snowflake.Entry, error) { return nil, errors.New("away") }
