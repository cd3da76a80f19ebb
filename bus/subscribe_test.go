package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// An end of an alert goes with the alerts only where it is wanted.
func TestFollowEpisodes(t *testing.T) {
	x := newStream(t)
	over := nats.NewMsg("leaf.events.info.segment.recovered.a.b")
	over.Header.Set("ce-time", time.Now().UTC().Format(time.RFC3339Nano))
	over.Data = []byte(`{"node":"n","tag":"a.b","episode":"starved"}`)
	x.publish(true, 1, 1)
	x.publish(false, 2, 2)
	x.keep(over)
	x.publish(true, 3, 3)
	c := bus.NewClient(natskit.Connect(t, x.s))
	for name, opts := range map[string][]bus.EventOption{"plain": {bus.Episodes()}, "durable": {bus.Episodes(), bus.Durable("pager")}} {
		f := follow(t, c, append(opts, anHourAgo())...)
		f.want(1, 1)
		if e, ok := f.next(); !ok || e.err != nil || e.Body != (bus.RecoveredEvent{Node: "n", Tag: "a.b", Episode: "starved"}) {
			t.Errorf("%s: %v came, want the end", name, e)
		}
		f.want(3, 3)
		f.stop()
	}
	again := follow(t, c, bus.Episodes(), bus.Durable("pager")) // made with several subjects, it fits
	x.publish(true, 4, 4)
	again.want(4, 4)
	follow(t, c, bus.AlertsOnly(), bus.Durable("pager")).fails("the durable consumer cannot be used")
	follow(t, c, bus.Episodes(), bus.Live()).fails("Episodes cannot be combined with Live")
}

func TestFollowWhich(t *testing.T) {
	x := newStream(t)
	x.publish(true, 1, 2)
	x.publish(false, 3, 4)
	c := bus.NewClient(natskit.Connect(t, x.s))
	all, alerts := follow(t, c, anHourAgo()), follow(t, c, anHourAgo(), bus.AlertsOnly())
	all.want(1, 4)
	alerts.want(1, 2)
	begun := len(x.consumers())
	fromNow, live, liveAlerts := follow(t, c), follow(t, c, bus.Live()), follow(t, c, bus.Live(), bus.AlertsOnly())
	testkit.Eventually(t, "all listen", func() bool { return len(x.consumers()) == begun+1 })
	// A plain subscription shows itself by what it hears only.
	var heard []came
	for n := 5; len(heard) == 0; n++ {
		x.publish(true, n, n)
		select {
		case c := <-live.all:
			heard = append(heard, c)
		case <-time.After(time.Millisecond):
		}
	}
	if c, _ := fromNow.next(); string(c.Data) != `{"waiting":5}` {
		t.Errorf("%v came first, want event 5", c)
	}
	c5, _ := alerts.next()
	if body, ok := c5.Body.(bus.StarvedEvent); !ok || body.Waiting != 5 || c5.Key != "order" || c5.Severity != "alert" {
		t.Errorf("the alert is %+v", c5.Event)
	}
	x.publish(false, 900, 900)
	x.publish(true, 901, 901)
	for _, f := range []*following{all, fromNow, live} {
		testkit.Eventually(t, "the last ones come", func() bool { c, _ := f.next(); return string(c.Data) == `{"waiting":900}` })
		f.want(901, 901)
	}
	for _, f := range []*following{alerts, liveAlerts} {
		testkit.Eventually(t, "the last alert comes", func() bool {
			c, _ := f.next()
			if c.Severity != "alert" {
				t.Errorf("%v came, which is no alert", c)
			}
			return string(c.Data) == `{"waiting":901}`
		})
	}
}

// Whatever the end of a loop is, it leaves nothing: no consumer on the server,
// no subscription on the connection, no goroutine (see TestMain).
func TestFollowLeavesNothing(t *testing.T) {
	x := newStream(t)
	nc := natskit.Connect(t, x.s)
	c := bus.NewClient(nc)
	if _, err := nc.Request("$JS.API.INFO", nil, testkit.Patience); err != nil {
		t.Fatal(err)
	}
	subscriptions := nc.NumSubscriptions() // that of all answers is there
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_ = x.nc.PublishMsg(message(true, n))
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for name, opts := range map[string][]bus.EventOption{"stream": nil, "since": {anHourAgo()}, "live": {bus.Live()}} {
		for _, end := range []string{"left", "cancelled in the loop", "cancelled from elsewhere"} {
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			for _, err := range c.Events(ctx, opts...) {
				if n++; err != nil {
					t.Errorf("%s, %s: %v", name, end, err)
				}
				if n > 3 && end != "cancelled from elsewhere" {
					t.Errorf("%s, %s: an event came after the end", name, end)
				}
				if n == 3 && end == "left" {
					break
				}
				if n == 3 && end == "cancelled in the loop" {
					cancel()
				}
				if n == 3 && end == "cancelled from elsewhere" {
					time.AfterFunc(2*time.Millisecond, cancel)
				}
			}
			cancel()
			if n < 3 {
				t.Errorf("%s, %s: it ended after %d", name, end, n)
			}
			testkit.Eventually(t, "no subscription is left", func() bool { return nc.NumSubscriptions() == subscriptions })
			if left := x.consumers(); len(left) > 0 {
				t.Errorf("%s, %s: the consumer %s is left", name, end, left[0].Name)
			}
		}
	}
}

// A message that is not an event is an error of its own, and the events behind it come.
func TestFollowPastOthers(t *testing.T) {
	x := newStream(t)
	c := bus.NewClient(natskit.Connect(t, x.s))
	odd := func() {
		t.Helper()
		for _, change := range []func(*nats.Msg){
			func(m *nats.Msg) { m.Subject = "leaf.events.nonsense" },
			func(m *nats.Msg) { m.Header = nil },
			func(m *nats.Msg) { m.Data = []byte("{") },
			func(m *nats.Msg) { m.Data = []byte(`{"waiting":"many"}`) },
		} {
			msg := message(true, 0)
			change(msg)
			x.keep(msg)
		}
	}
	check := func(f *following) {
		t.Helper()
		f.want(1, 1)
		for range 4 {
			if got, ok := f.next(); !ok || !errors.Is(got.err, bus.ErrNotAnEvent) || !strings.Contains(got.err.Error(), "leaf.events.") {
				t.Errorf("%v came, want the message that is no event named", got)
			}
		}
		f.want(2, 2)
	}
	live := follow(t, c, bus.Live())
	testkit.Eventually(t, "it listens", func() bool {
		x.publish(false, 0, 0)
		select {
		case <-live.all:
			return true
		case <-time.After(time.Millisecond):
			return false
		}
	})
	since := time.Now()
	x.publish(true, 1, 1)
	odd()
	x.publish(true, 2, 2)
	testkit.Eventually(t, "it has heard the first", func() bool { c, _ := live.next(); return string(c.Data) == `{"waiting":1}` })
	live.stop()
	f := follow(t, c, bus.Since(since))
	check(f)
	f.stop()
	f = follow(t, c, bus.Since(since), bus.Durable("d"))
	check(f)
	x.publish(true, 3, 3)
	f.want(3, 3) // it asked for it: event 2 is acknowledged
	f.stop()
	testkit.Eventually(t, "all is acknowledged", func() bool {
		about := x.consumer()
		return about.NumAckPending == 0 && about.NumPending == 0 && about.AckFloor.Stream == about.Delivered.Stream
	})
}

func TestFollowWhatCannotBe(t *testing.T) {
	x := newStream(t)
	for _, opts := range [][]bus.EventOption{{bus.Live(), anHourAgo()}, {bus.Live(), bus.Durable("d")}} {
		follow(t, bus.NewClient(x.nc), opts...).fails("Live cannot be combined with")
	}
	for _, name := range []string{"", "a.b", "a b"} {
		if err := follow(t, bus.NewClient(x.nc), bus.Durable(name)).fails("durable"); !errors.Is(err, jetstream.ErrInvalidConsumerName) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	empty := natskit.Connect(t, natskit.Start(t))
	if err := follow(t, bus.NewClient(empty)).fails("there is no stream LEAF_EVENTS", "a generator creates it"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Error(err)
	}
	domain, err := jetstream.NewWithDomain(x.nc, "elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	if err := follow(t, bus.NewClient(x.nc, bus.JetStream(domain))).fails("no JetStream"); !errors.Is(err, bus.ErrNoJetStream) {
		t.Error(err)
	}
	closed := natskit.Connect(t, x.s)
	f := follow(t, bus.NewClient(closed), anHourAgo())
	live := follow(t, bus.NewClient(closed), bus.Live())
	x.consumer()
	testkit.Eventually(t, "both listen", func() bool { return closed.NumSubscriptions() == 3 })
	closed.Close()
	f.fails("closed")
	live.fails("closed")
}

// Without JetStream events are heard live, and only so.
func TestFollowWithoutJetStream(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(testkit.Patience) {
		t.Fatal("the server is not ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := bus.NewClient(nc)
	for _, opts := range [][]bus.EventOption{nil, {anHourAgo()}, {bus.Durable("d")}} {
		if err := follow(t, c, opts...).fails("no JetStream", "--live"); !errors.Is(err, bus.ErrNoJetStream) {
			t.Error(err)
		}
	}
	f := follow(t, c, bus.Live())
	testkit.Eventually(t, "an event is heard", func() bool {
		if err := nc.PublishMsg(message(true, 1)); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-f.all:
			body, ok := got.Body.(bus.StarvedEvent)
			return ok && body.Waiting == 1
		case <-time.After(time.Millisecond):
			return false
		}
	})
	f.stop()
}
