package generator_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// Generators stop one after the other, and start again. In the end every ID that was claimed was handed out or is in
// memory, but for those of a strict tag, of which nothing is ever left.
func TestHandOverLeavesNoGap(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t)
	withInvoice(t, store)
	for i := range 300 {
		add(t, store, allocator.Tag{Name: fmt.Sprint("many", i), Step: 10})
	}
	add(t, store, allocator.Tag{Name: "order", Step: 1000})
	one, _ := startIn(t, s, "one", "own", store, nil)
	two, _ := startIn(t, s, "two", "own", store, nil)
	testkit.Eventually(t, "the two hear each other", func() bool { return one.Hears("two") && two.Hears("one") })
	var ids allocatortest.Checker
	take := func(r *running, tag string, n int64) {
		t.Helper()
		ranges, err := r.Take(t.Context(), tag, n)
		if err != nil {
			t.Fatal(err)
		}
		if tag == "order" {
			ids.Add(ranges...)
		}
	}
	for i := range 300 { // two has none of these in memory
		take(one, fmt.Sprint("many", i), 1)
	}
	for n := range 3 {
		for range 40 {
			take(one, "order", 70)
			take(two, "order", 30)
			take(one, "invoice", 1)
		}
		testkit.Eventually(t, "refills have ended", func() bool { return len(one.State().Busiest) > 0 && one.Left("order") > 1000 })
		before := one.Left("order") + two.Left("order")
		if err := one.stop(); err != nil {
			t.Fatal(err)
		}
		if has := two.Left("order"); has < before {
			t.Errorf("%d IDs are in memory, and there were %d before the stop", has, before)
		}
		restarted, _ := startIn(t, s, fmt.Sprint("again", n), "own", store, nil)
		testkit.Eventually(t, "the two hear each other", func() bool { return two.Hears(restarted.node) && restarted.Hears(two.node) })
		one, two = two, restarted
	}
	for i := range 300 {
		if one.Left(fmt.Sprint("many", i))+two.Left(fmt.Sprint("many", i)) < 9 {
			t.Fatalf("the IDs of many%d were not handed over", i)
		}
	}
	handed, err := ids.Check()
	if err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "all IDs that were claimed are handed out or in memory", func() bool {
		return handed+one.Left("order")+two.Left("order") == store.Snapshot()["order"].MaxID-1
	})
}

// Callers ask while a generator stops and another one goes on. Each gets an ID, and none comes twice: what comes after
// the hand-over is borrowed.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s, nats.SyncQueueLen(1<<20)) // a quick machine sends many before the stop has ended
	store := memory(t)
	add(t, store, allocator.Tag{Name: "order", Step: 100_000})
	one, _ := startIn(t, s, "one", "own", store, nil)
	two, _ := startIn(t, s, "two", "own", store, nil)
	one.takeAll(t, "order", 1)
	two.takeAll(t, "order", 1)
	testkit.Eventually(t, "the two hear each other", func() bool { return one.Hears("two") && two.Hears("one") })
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	sent, last := 0, false
	for ; !last; sent++ {
		if sent == 1000 {
			go func() { stopped <- one.stop() }()
		}
		if err := nc.PublishRequest("leaf.segment.order", replies.Subject, nil); err != nil {
			t.Fatal(err)
		}
		if sent%100 == 0 {
			_ = nc.Flush()
			select {
			case err := <-stopped:
				last = true
				if err != nil {
					t.Error(err)
				}
			default:
			}
		}
	}
	var ids allocatortest.Checker
	for i := range sent {
		msg, err := replies.NextMsg(testkit.Patience)
		if err == nil {
			err = bus.ReplyError(msg)
		}
		if err != nil {
			t.Fatalf("answer %d of %d: %v", i, sent, err)
		}
		ranges, err := wire.ParseReply(msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		ids.Add(ranges...)
	}
	if n, err := ids.Check(); n != int64(sent) || err != nil {
		t.Errorf("%d IDs for %d requests, %v", n, sent, err)
	}
}

// heirs answer as generators that are not there. They answer that they take no tag, or nothing if they are silent.
func heirs(t *testing.T, nc *nats.Conn, r *running, silent bool) (gifts *atomic.Int64) {
	t.Helper()
	gifts = new(atomic.Int64)
	for _, node := range []string{"heir", "brother"} {
		if _, err := nc.Subscribe(wire.SubjectGive+".run-of-"+node, func(msg *nats.Msg) {
			if gifts.Add(1); !silent {
				_ = msg.Respond([]byte("{}"))
			}
		}); err != nil {
			t.Fatal(err)
		}
		r.report(t, nc, node, `,"segment":true,"created":"2099-01-01T00:00:00Z","installation":"own"`)
	}
	return gifts
}

// What a receiver does not take goes to the next one. If it does not answer, the IDs are a gap: they are sent to no one
// again.
func TestHandOverOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		silent bool
		want   int64
	}{
		"silent": {true, 1}, "full": {false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			store := memory(t, "order")
			one, _ := startIn(t, s, "one", "own", store, nil)
			one.takeAll(t, "order", 1)
			gifts := heirs(t, nc, one, c.silent)
			if err := one.stop(); err != nil {
				t.Fatal(err)
			}
			if gifts.Load() != c.want {
				t.Errorf("the IDs were sent %d times, want %d", gifts.Load(), c.want)
			}
		})
	}
}

// A generator takes IDs over from those of its installation alone, while it serves and knows what operators set.
func TestReceives(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	one, _ := startIn(t, s, "one", "own", memory(t, "order"), func(cfg *generator.Config) { cfg.DrainTimeout = testkit.Patience })
	one.takeAll(t, "order", 1)
	testkit.Eventually(t, "the first segment is all that there is", func() bool { return one.Left("order") >= 9 })
	first := int64(1000)
	want := func(installation, reply string) {
		t.Helper()
		first += 100
		body := fmt.Sprintf(`{"installation":%q,"gifts":[{"tag":"order","ranges":[{"first":"%d","last":"%d","run":"a"}]}]}`,
			installation, first, first+9)
		if got, _ := ask(t, nc, wire.SubjectGive+"."+one.RunID(), body); got != reply {
			t.Errorf("of installation %q: %s, want %s", installation, got, reply)
		}
	}
	const nothing = `{"ids":0,"tags":null}`
	want("own", `{"ids":10,"tags":["order"]}`)
	want("other", nothing)
	want("", nothing)
	one.HoldSegments() // now it does not know what operators have set
	want("own", nothing)
	for _, body := range []string{"", "garbage", `{"gifts":7}`} {
		if err := nc.Publish(wire.SubjectGive+"."+one.RunID(), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if _, code := ask(t, nc, wire.SubjectTake+"."+one.RunID(), `{"installation":"own","count":1}`); code == "no responders" {
		t.Error("it is gone")
	}
}
