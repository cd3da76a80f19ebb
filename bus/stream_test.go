package bus_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
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
		msg.Respond(bus.AppendReply(nil, []bus.Range{{First: next, Last: next + n - 1}}, false))
		next += n
	}
	loop, used := make(chan bool), make(chan int64)
	go func() {
		defer close(used)
		for r, err := range bus.NewClient(natskit.Connect(t, s)).Ranges(testkit.Context(t), "order", 1000, bus.Batch(10), bus.Parallel(3)) {
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
	for _, err := range bus.NewClient(nc).IDs(testkit.Context(t), "order", 1000, bus.Batch(10), bus.Parallel(1)) {
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
