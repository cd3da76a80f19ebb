package bus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A durable consumer goes on where the last one was: what it was left at comes
// again, what was handled does not.
func TestDurable(t *testing.T) {
	x := newStream(t)
	x.publish(true, 1, 3)
	c := bus.NewClient(natskit.Connect(t, x.s))
	leaveAt := func(last int, opts ...bus.EventOption) (got []string) {
		t.Helper()
		for e, err := range c.Events(t.Context(), append(opts, bus.Durable("pager"))...) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(e.Data))
			if string(e.Data) == fmt.Sprintf(`{"waiting":%d}`, last) {
				break
			}
		}
		return got
	}
	expect := func(got []string, first, last int) {
		t.Helper()
		want := make([]string, 0)
		for n := first; n <= last; n++ {
			want = append(want, fmt.Sprintf(`{"waiting":%d}`, n))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v came, want %v", got, want)
		}
	}
	expect(leaveAt(2, anHourAgo()), 1, 2)
	x.publish(true, 4, 5)
	expect(leaveAt(3), 2, 3)
	expect(leaveAt(5, bus.Since(time.Now().Add(time.Hour))), 3, 5) // since when: at its first use alone
	about := x.consumer().Config
	if about.AckWait != 30*time.Second || about.MaxAckPending != 512 || about.Durable != "pager" || about.InactiveThreshold != 0 {
		t.Errorf("it was made as %+v", about)
	}

	// Who dies at an event lets it come again.
	if _, err := x.js.UpdateConsumer(t.Context(), bus.EventStream, quick(about)); err != nil {
		t.Fatal(err)
	}
	dying := natskit.Connect(t, x.s)
	f := follow(t, bus.NewClient(dying), bus.Durable("pager"))
	f.want(5, 5)
	x.publish(true, 6, 6)
	testkit.Eventually(t, "it works on the next", func() bool { return x.consumer().AckFloor.Stream == 5 && x.consumer().NumAckPending == 1 })
	dying.Close()
	f.stop()
	expect(leaveAt(6), 6, 6)
	if about := x.consumer().Config; about.AckWait != 200*time.Millisecond {
		t.Errorf("the consumer that was there was changed: %+v", about)
	}
}

// quick is a consumer whose events come again soon.
func quick(cfg jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	cfg.AckWait = 200 * time.Millisecond
	return cfg
}

// Loops with one name share the events, also if all begin at once.
func TestDurableShared(t *testing.T) {
	x := newStream(t)
	const sharers, events = 4, 200
	clients := make([]*bus.Client, sharers)
	for i := range clients {
		clients[i] = bus.NewClient(natskit.Connect(t, x.s))
	}
	var loops []*following
	for i, c := range clients {
		since := bus.Since(time.Now().Add(-time.Hour - time.Duration(i)*time.Minute)) // each begins at another time
		loops = append(loops, follow(t, c, bus.Durable("d"), since))
	}
	x.publish(true, 1, events)
	count := make(map[string]int)
	for n := 0; n < events; n++ {
		var got came
		select {
		case got = <-loops[0].all:
		case got = <-loops[1].all:
		case got = <-loops[2].all:
		case got = <-loops[3].all:
		case <-time.After(testkit.Patience):
			t.Fatalf("only %d came", n)
		}
		if got.err != nil {
			t.Fatal(got.err)
		}
		count[string(got.Data)]++
	}
	if len(count) != events {
		t.Errorf("%d events came, want %d, each once: %v", len(count), events, count)
	}
	// A request for events that meets the deletion is not answered.
	testkit.Eventually(t, "all wait for events", func() bool { return x.consumer().NumWaiting == sharers })
	if err := x.js.DeleteConsumer(t.Context(), bus.EventStream, "d"); err != nil {
		t.Fatal(err)
	}
	for _, f := range loops {
		f.fails(`"d" was deleted`)
	}
	if left := x.consumers(); len(left) > 0 {
		t.Errorf("%s was made again", left[0].Name)
	}
}

// A consumer that is there is never changed: it is used, or refused.
func TestDurableThatIsThere(t *testing.T) {
	x := newStream(t)
	x.publish(true, 1, 1)
	c := bus.NewClient(natskit.Connect(t, x.s))
	for name, test := range map[string]struct {
		cfg     jetstream.ConsumerConfig
		opts    []bus.EventOption
		refused string
	}{
		"all":           {jetstream.ConsumerConfig{FilterSubject: bus.EventSubjects}, nil, ""},
		"unfiltered":    {jetstream.ConsumerConfig{}, nil, ""},
		"alerts":        {jetstream.ConsumerConfig{FilterSubjects: []string{bus.AlertSubjects}}, []bus.EventOption{bus.AlertsOnly()}, ""},
		"alerts-all":    {jetstream.ConsumerConfig{FilterSubject: bus.AlertSubjects}, nil, `it selects ["leaf.events.alert.>"], this loop ["leaf.events.>"]`},
		"all-alerts":    {jetstream.ConsumerConfig{}, []bus.EventOption{bus.AlertsOnly()}, `it selects ["leaf.events.>"], this loop ["leaf.events.alert.>"]`},
		"no-acks":       {jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, nil, "acknowledgements"},
		"not-durable":   {jetstream.ConsumerConfig{Name: "not-durable", InactiveThreshold: time.Hour}, nil, "not durable"},
		"of-two-kinds":  {jetstream.ConsumerConfig{FilterSubjects: []string{bus.AlertSubjects, "leaf.events.info.>"}}, nil, "it selects"},
		"pushes-events": {jetstream.ConsumerConfig{DeliverSubject: "somewhere"}, nil, "sends events to a fixed subject"},
	} {
		if test.cfg.Name == "" {
			test.cfg.Durable = name
		}
		if test.cfg.DeliverSubject != "" {
			if _, err := x.js.CreatePushConsumer(t.Context(), bus.EventStream, test.cfg); err != nil {
				t.Fatal(name, err)
			}
		} else if _, err := x.js.CreateConsumer(t.Context(), bus.EventStream, test.cfg); err != nil {
			t.Fatal(name, err)
		}
		before := fmt.Sprintf("%+v", x.consumer().Config)
		f := follow(t, c, append(test.opts, bus.Durable(name))...)
		if test.refused == "" {
			f.want(1, 1)
			f.stop()
		} else {
			f.fails(test.refused, "nats consumer rm LEAF_EVENTS "+name)
		}
		if after := fmt.Sprintf("%+v", x.consumer().Config); after != before {
			t.Errorf("%s was changed from %s to %s", name, before, after)
		}
		if err := x.js.DeleteConsumer(t.Context(), bus.EventStream, name); err != nil {
			t.Fatal(err)
		}
	}
}
