package bus_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
)

// A bulk is exactly as many IDs as were asked for, each once, whatever the
// batches are and whatever a generator gives at most.
func TestBulk(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	start(t, s, "g1", memory(t, "order"), func(c *bus.Config) { c.MaxBatch = 300 })
	c := bus.NewClient(connect(t, s))
	seen := make(map[int64]bool)
	for _, test := range []struct {
		n, batch int64
		parallel int
	}{{1, 1, 1}, {1000, 7, 1}, {1000, 7, 5}, {5000, 100_000, 3}, {999, 1000, 1}, {10, 100, 8}} {
		var progress []int64
		var got int64
		opts := []bus.BulkOption{bus.Batch(test.batch), bus.Parallel(test.parallel), bus.Progress(func(done int64) {
			if done != got {
				t.Errorf("%+v: progress says %d after %d", test, done, got)
			}
			progress = append(progress, done)
		})}
		last := int64(0)
		for id, err := range c.IDs(patient(t), "order", test.n, opts...) {
			if err != nil || id < 1 || seen[id] {
				t.Fatalf("%+v: after %d: %d, %v (seen: %v)", test, got, id, err, seen[id])
			}
			if test.parallel == 1 && id < last {
				t.Errorf("%+v: %d after %d", test, id, last)
			}
			seen[id], last = true, id
			got++
		}
		if got != test.n || len(progress) == 0 || !slices.IsSorted(progress) || progress[len(progress)-1] != test.n {
			t.Errorf("%+v: %d IDs; progress %v", test, got, progress)
		}
		got = 0
		for r, err := range c.SnowflakeRanges(patient(t), test.n, opts...) {
			if err != nil {
				t.Fatal(err)
			}
			for id := range r.All() {
				if seen[id] {
					t.Errorf("snowflake %d came twice", id)
				}
				seen[id] = true
			}
			got += r.Len()
		}
		if got != test.n {
			t.Errorf("%+v: %d snowflakes", test, got)
		}
	}
}

// As many requests as were allowed are under way, and no more while the loop
// does not go on.
func TestBulkIsBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	requests := make(chan *nats.Msg, 100)
	n := answers(t, s, "leaf.segment.order", func(_ int64, msg *nats.Msg) *nats.Msg { requests <- msg; return nil })
	next := int64(1)
	answer := func(msg *nats.Msg) {
		n, _ := strconv.ParseInt(string(msg.Data), 10, 64)
		msg.Respond(bus.AppendReply(nil, []bus.Range{{First: next, Last: next + n - 1}}, false))
		next += n
	}
	loop, used := make(chan bool), make(chan int64)
	go func() {
		defer close(used)
		for r, err := range bus.NewClient(connect(t, s)).Ranges(patient(t), "order", 1000, bus.Batch(10), bus.Parallel(3)) {
			if err != nil {
				t.Error(err)
				return
			}
			used <- r.Len()
			if !<-loop {
				return
			}
		}
	}()
	for range 3 { // the first three
		answer(<-requests)
	}
	for i := range int64(5) {
		if got := <-used; got != 10 {
			t.Fatalf("a range of %d", got)
		}
		answer(<-requests) // that which took the place of the one in use
		if len(requests) != 0 || n.Load() != 4+i {
			t.Errorf("%d requests while batch %d is used", n.Load(), i)
		}
		loop <- true
	}
	<-used
	loop <- false // it is left with requests under way
	if _, more := <-used; more {
		t.Error("it goes on")
	}
}

// What came before an error is valid, the error is the last, and nothing is left
// running, however the loop ends.
func TestBulkThatEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	nc := connect(t, s)
	answers(t, s, "leaf.segment.order", func(i int64, msg *nats.Msg) *nats.Msg {
		if i > 5 {
			return refusal(507, bus.Exhausted, 0)
		}
		return ids(strconv.FormatInt(10*i, 10) + "-" + strconv.FormatInt(10*i+9, 10))
	})
	var got int
	var errs []error
	for _, err := range bus.NewClient(nc).IDs(patient(t), "order", 1000, bus.Batch(10), bus.Parallel(1)) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		got++
	}
	if got != 50 || len(errs) != 1 || !errors.Is(errs[0], bus.Exhausted) {
		t.Errorf("%d IDs, %v", got, errs)
	}

	// Cancelled with requests that nobody answers.
	ctx, cancel := context.WithCancel(t.Context())
	answers(t, s, "leaf.segment.silent", func(i int64, _ *nats.Msg) *nats.Msg {
		if i == 8 {
			cancel()
		}
		return nil
	})
	if err := first(bus.NewClient(nc).Ranges(ctx, "silent", 1000, bus.Batch(1), bus.Parallel(8))); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
