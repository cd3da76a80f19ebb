package bus_test

import (
	"errors"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// As many requests as were allowed are under way, and no more while the loop
// does not go on.
func TestBulkIsBounded(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	requests := make(chan *nats.Msg, 100)
	n := answers(t, s, "leaf.segment.order", func(_ int64, msg *nats.Msg) *nats.Msg { requests <- msg; return nil })
	next := int64(1)
	answer := func(msg *nats.Msg) {
		n, _ := strconv.ParseInt(string(msg.Data), 10, 64)
		msg.Respond(wire.AppendReply(nil, []bus.Range{{First: next, Last: next + n - 1}}, false))
		next += n
	}
	loop, used := make(chan bool), make(chan int64)
	go func() {
		defer close(used)
		for r, err := range bus.NewClient(natskit.Connect(t, s), bus.NoHedging()).Ranges(testkit.Context(t), "order", 1000, bus.Batch(10), bus.Parallel(3)) {
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

// What came before an error is valid, and the error is the last.
func TestBulkThatEnds(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	answers(t, s, "leaf.segment.order", func(i int64, msg *nats.Msg) *nats.Msg {
		if i > 5 {
			return refusal(507, bus.Exhausted, 0)
		}
		return ids(strconv.FormatInt(10*i, 10) + "-" + strconv.FormatInt(10*i+9, 10))
	})
	var got int
	var errs []error
	for _, err := range bus.NewClient(nc, bus.NoHedging()).IDs(testkit.Context(t), "order", 1000, bus.Batch(10), bus.Parallel(1)) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		got++
	}
	if got != 50 || len(errs) != 1 || !errors.Is(errs[0], bus.Exhausted) {
		t.Errorf("%d IDs, %v", got, errs)
	}
}

// The first answer says that the tag is strict: then there is one request at a time, and none while the
// loop uses an answer.
func TestBulkOfAStrictTag(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	next := int64(1)
	n := answers(t, s, "leaf.segment.invoice", func(_ int64, msg *nats.Msg) *nats.Msg {
		n, _ := strconv.ParseInt(string(msg.Data), 10, 64)
		if n > 7 { // as a generator with a small --max-batch
			return refusal(413, bus.BatchTooLarge, 0)
		}
		next += n + 2
		reply := ids(bus.Range{First: next - n, Last: next - 1}.String())
		reply.Header = nats.Header{wire.HeaderOrder: {idspace.OrderStrict}}
		return reply
	})
	client := bus.NewClient(natskit.Connect(t, s), bus.NoHedging())
	for _, parallel := range []int{1, 3, 1000} {
		n.Store(0)
		var last, got int64
		// The first request is refused, as too large. One is sent again only if this process stood still for seconds.
		answered, before := int64(1), client.Stats().Retries
		bulk := client.Ranges(testkit.Context(t), "invoice", 100, bus.Batch(10), bus.Parallel(parallel))
		for r, err := range bulk {
			if err != nil {
				t.Fatal(err)
			}
			if r.First <= last {
				t.Errorf("Parallel %d: %d after %d", parallel, r.First, last)
			}
			// Another caller takes an ID. The IDs of the next answer are above it.
			other, err := client.Take(testkit.Context(t), "invoice", 1)
			if err != nil {
				t.Fatal(err)
			}
			answered += 2
			if want := answered + client.Stats().Retries - before; n.Load() != want {
				t.Errorf("Parallel %d: %d requests while %v is used, want %d", parallel, n.Load(), r, want)
			}
			got, last = got+r.Len(), other[0].Last
		}
		if got != 100 {
			t.Errorf("Parallel %d: %d IDs", parallel, got)
		}
	}
}

// A generator gives few IDs at a time: the loop gets as many as it wants, each once, and no ID is lost.
func TestBulkOfSmallAnswers(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	var given atomic.Int64
	answers(t, s, "leaf.segment.order", func(_ int64, msg *nats.Msg) *nats.Msg {
		n, _ := strconv.ParseInt(string(msg.Data), 10, 64)
		if n > 7 {
			return refusal(413, bus.BatchTooLarge, 0)
		}
		last := given.Add(n)
		return ids(bus.Range{First: last - n + 1, Last: last}.String())
	})
	client := bus.NewClient(natskit.Connect(t, s), bus.NoHedging())
	for _, parallel := range []int{1, 3, 1000} {
		given.Store(0)
		seen := make(map[int64]bool)
		for id, err := range client.IDs(testkit.Context(t), "order", 100, bus.Batch(20), bus.Parallel(parallel)) {
			if err != nil {
				t.Fatal(err)
			}
			seen[id] = true
		}
		if len(seen) != 100 || given.Load() != 100 {
			t.Errorf("Parallel %d: %d IDs, %d were given", parallel, len(seen), given.Load())
		}
	}
}
