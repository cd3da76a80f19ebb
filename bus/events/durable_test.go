package events_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// quick makes the events of a durable consumer come again soon.
func (x *stream) quick(name string) {
	x.t.Helper()
	consumer, err := x.js.Consumer(x.t.Context(), events.Stream, name)
	if err == nil {
		cfg := consumer.CachedInfo().Config
		cfg.AckWait = 200 * time.Millisecond
		_, err = x.js.UpdateConsumer(x.t.Context(), events.Stream, cfg)
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// A durable consumer goes on where the last one was: what it was left at comes again, what was handled does not. Loops
// with one name share the events.
func TestDurable(t *testing.T) {
	x := newStream(t)
	x.publish(true, 1, 3)
	pager := func() *following {
		return follow(t, natskit.Connect(t, x.s), events.Durable("pager"), anHourAgo())
	}
	leaveAfter := func(n int) (got []string) { // does not ask for the next one
		t.Helper()
		for e, err := range events.Follow(t.Context(), x.js, events.Durable("pager"), anHourAgo()) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, string(e.Data)); len(got) == n {
				break
			}
		}
		return got
	}
	if got := leaveAfter(2); !slices.Equal(got, []string{`{"waiting":1}`, `{"waiting":2}`}) {
		t.Errorf("%s came", got)
	}
	x.publish(true, 4, 5)
	got := leaveAfter(4) // the one that comes again may come after younger ones
	left := got[3]
	slices.Sort(got)
	if !slices.Equal(got, []string{`{"waiting":2}`, `{"waiting":3}`, `{"waiting":4}`, `{"waiting":5}`}) {
		t.Errorf("%s came after the loop was left at 2", got)
	}
	about := x.consumer().Config
	if about.AckWait != 30*time.Second || about.MaxAckPending != 512 || about.Durable != "pager" || about.InactiveThreshold != 0 {
		t.Errorf("it was made as %+v", about)
	}

	// A process that dies at an event lets it come again. A consumer that is there is not changed.
	x.quick("pager")
	dying := natskit.Connect(t, x.s)
	f := follow(t, dying, events.Durable("pager"))
	if again, _ := f.next(); again.String() != left {
		t.Errorf("%v came after the loop was left at %s", again, left)
	}
	x.publish(true, 6, 6)
	testkit.Eventually(t, "it works on the next", func() bool { return x.consumer().AckFloor.Stream == 5 && x.consumer().NumAckPending == 1 })
	dying.Close()
	f.stop()
	loops := []*following{pager(), pager()}
	x.publish(true, 7, 100)
	seen := make(map[string]bool)
	for len(seen) < 95 {
		var got came
		select {
		case got = <-loops[0].all:
		case got = <-loops[1].all:
		case <-time.After(testkit.Patience):
			t.Fatalf("only %d came", len(seen))
		}
		if got.err != nil || seen[got.String()] {
			t.Fatalf("%v came, and %d before", got, len(seen))
		}
		seen[got.String()] = true
	}
	if about := x.consumer().Config; about.AckWait != 200*time.Millisecond {
		t.Errorf("the consumer that was there was changed: %+v", about)
	}
	// A request for events that meets the deletion is not answered.
	testkit.Eventually(t, "all wait for events", func() bool { return x.consumer().NumWaiting == len(loops) })
	if err := x.js.DeleteConsumer(t.Context(), events.Stream, "pager"); err != nil {
		t.Fatal(err)
	}
	for _, f := range loops {
		f.fails(`"pager" was deleted`)
	}
	if left := x.consumers(); len(left) > 0 {
		t.Errorf("%s was made again", left[0].Name)
	}
}

// A consumer that is there is used as it is, or refused if it would lose events or selects others.
func TestDurableThatIsThere(t *testing.T) {
	x := newStream(t)
	x.publish(true, 1, 1)
	for name, test := range map[string]struct {
		cfg     jetstream.ConsumerConfig
		refused string
	}{
		"unfiltered":  {jetstream.ConsumerConfig{Durable: "unfiltered"}, ""},
		"alerts":      {jetstream.ConsumerConfig{Durable: "alerts", FilterSubject: events.AlertSubjects}, `it selects ["leaf.events.alert.>"], this loop "leaf.events.>"`},
		"no-acks":     {jetstream.ConsumerConfig{Durable: "no-acks", AckPolicy: jetstream.AckNonePolicy}, "acknowledgements"},
		"not-durable": {jetstream.ConsumerConfig{Name: "not-durable", InactiveThreshold: time.Hour}, "not durable"},
	} {
		if _, err := x.js.CreateConsumer(t.Context(), events.Stream, test.cfg); err != nil {
			t.Fatal(name, err)
		}
		before := fmt.Sprintf("%+v", x.consumer().Config)
		f := follow(t, x.nc, events.Durable(name))
		if test.refused == "" {
			f.want(1, 1)
			f.stop()
		} else {
			f.fails(test.refused, "nats consumer rm LEAF_EVENTS "+name)
		}
		if after := fmt.Sprintf("%+v", x.consumer().Config); after != before {
			t.Errorf("%s was changed from %s to %s", name, before, after)
		}
		if err := x.js.DeleteConsumer(t.Context(), events.Stream, name); err != nil {
			t.Fatal(err)
		}
	}
}
