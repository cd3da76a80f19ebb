package events_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A loop follows all events or alerts, from a time or from now on.
func TestFollowWhich(t *testing.T) {
	x := newStream(t)
	x.publish(true, 1, 2)
	x.publish(false, 3, 4)
	nc := natskit.Connect(t, x.s)
	all, alerts, fromNow := follow(t, nc, anHourAgo()), follow(t, nc, anHourAgo(), events.AlertsOnly()), follow(t, nc)
	all.want(1, 4)
	alerts.want(1, 2)
	testkit.Eventually(t, "all listen", func() bool { return len(x.consumers()) == 3 })
	x.publish(true, 5, 5)
	x.publish(false, 6, 6)
	x.publish(true, 7, 7)
	all.want(5, 7)
	fromNow.want(5, 7)
	alert, _ := alerts.next()
	if body, ok := alert.Body.(events.Starved); !ok || body.Waiting != 5 || alert.Key != "order" || alert.Severity != "alert" {
		t.Errorf("the alert is %+v", alert.Event)
	}
	alerts.want(7, 7)
}

// A loop leaves nothing: no consumer on the server, no subscription on the connection, no goroutine (see TestMain).
func TestFollowLeavesNothing(t *testing.T) {
	x := newStream(t)
	x.publish(true, 1, 20)
	nc := natskit.Connect(t, x.s)
	if _, err := nc.Request("$JS.API.INFO", nil, testkit.Patience); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	subscriptions := nc.NumSubscriptions() // that of all answers is there
	for _, leaves := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		for _, err := range events.Follow(ctx, js, anHourAgo()) {
			if n++; err != nil || n > 3 {
				t.Errorf("event %d, %v", n, err)
			}
			if n == 3 && leaves {
				break
			}
			if n == 3 {
				cancel()
			}
		}
		cancel()
		testkit.Eventually(t, "no subscription is left", func() bool { return nc.NumSubscriptions() == subscriptions })
		if left := x.consumers(); n < 3 || len(left) > 0 {
			t.Errorf("after %d events: %d consumers are left", n, len(left))
		}
	}
}

// A message that is not an event is an error of its own, and the events behind it come.
func TestFollowPastOthers(t *testing.T) {
	x := newStream(t)
	nc := natskit.Connect(t, x.s)
	x.publish(true, 1, 1)
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
	x.publish(true, 2, 3)
	for name, opts := range map[string][]events.Option{"plain": nil, "durable": {events.Durable("d")}} {
		f := follow(t, nc, append(opts, anHourAgo())...)
		f.want(1, 1)
		for range 4 {
			if got, ok := f.next(); !ok || !errors.Is(got.err, events.ErrNotAnEvent) || !strings.Contains(got.err.Error(), "leaf.events.") {
				t.Errorf("%s: %v came, want the message that is no event named", name, got)
			}
		}
		f.want(2, 3)
		f.stop()
	}
}

func TestFollowWhatCannotBe(t *testing.T) {
	x := newStream(t)
	for _, name := range []string{"", "a.b", "a b"} {
		if err := follow(t, x.nc, events.Durable(name)).fails("durable"); !errors.Is(err, jetstream.ErrInvalidConsumerName) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	empty := natskit.Connect(t, natskit.Start(t))
	if err := follow(t, empty).fails("there is no stream LEAF_EVENTS", "a generator creates it"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Error(err)
	}
	domain, err := jetstream.NewWithDomain(x.nc, "elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	if err := followIn(t, domain).fails("no JetStream"); !errors.Is(err, events.ErrNoJetStream) {
		t.Error(err)
	}
	closed := natskit.Connect(t, x.s)
	f := follow(t, closed, anHourAgo())
	x.consumer()
	closed.Close()
	f.fails("closed")
}

// NATS reports a denied request to the connection, and does not answer it. The loop ends with it when
// its time is over.
func TestFollowWithoutPermission(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "nats.conf")
	err := os.WriteFile(conf, []byte(`authorization { users: [
		{user: all, password: p}
		{user: mute, password: p, permissions: {publish: {deny: ["$JS.>"], allow: ">"}}}
		{user: deaf, password: p, permissions: {subscribe: {deny: ["_INBOX.>"]}}}
	] }`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := natskit.StartWith(t, embedded.Config{ConfigFile: conf, User: "all", Password: "p"})
	for _, user := range []string{"mute", "deaf"} {
		nc := natskit.Connect(t, s, nats.UserInfo(user, "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err := follow(t, nc, events.Timeout(300*time.Millisecond)).fails(); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: %v", user, err)
		}
	}
}
