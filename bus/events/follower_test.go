package events_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// outage is a server that goes and comes back, and a follower whose connection
// comes back when the test allows it.
type outage struct {
	*stream
	cfg   embedded.Config
	nc    *nats.Conn // the follower's
	allow chan struct{}
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	cfg := embedded.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), Log: testkit.Quiet}
	s, err := embedded.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o := &outage{cfg: cfg, allow: make(chan struct{})}
	o.cfg.Listen = strings.TrimPrefix(s.ClientURL(), "nats://")
	o.stream = openStream(t, s)
	t.Cleanup(func() { o.s.Close() })
	return o
}

// connect returns the connection of the follower.
func (o *outage) connect() *nats.Conn {
	o.t.Helper()
	var err error
	o.nc, err = nats.Connect(o.s.ClientURL(), nats.MaxReconnects(-1), nats.CustomReconnectDelay(func(int) time.Duration {
		<-o.allow
		return 0
	}))
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(o.nc.Close)
	o.t.Cleanup(o.back)
	return o.nc
}

// away ends the server, and restart starts it again. The follower stays disconnected.
func (o *outage) away() {
	o.t.Helper()
	o.s.Close()
	testkit.Eventually(o.t, "the follower is cut off", func() bool { return !o.nc.IsConnected() })
}

func (o *outage) restart() {
	o.t.Helper()
	s, err := embedded.Start(o.cfg)
	if err != nil {
		o.t.Fatal(err)
	}
	o.stream = openStream(o.t, s)
}

// back lets the follower come back.
func (o *outage) back() {
	select {
	case <-o.allow:
	default:
		close(o.allow)
	}
}

// What happens while the connection is away is not missed, also by one that has
// heard nothing yet, and nothing comes twice.
func TestFollowThroughRestart(t *testing.T) {
	o := newOutage(t)
	o.publish(true, 1, 3)
	nc := o.connect()
	all, fromNow := follow(t, nc, anHourAgo(), events.AlertsOnly()), follow(t, nc)
	durable := follow(t, nc, events.Durable("d"), anHourAgo())
	all.want(1, 3)
	durable.want(1, 2) // the third is on its way, or here
	testkit.Eventually(t, "they listen", func() bool { return len(o.consumers()) == 3 })
	o.quick("d")
	leaves := follow(t, nc)
	testkit.Eventually(t, "one more listens", func() bool { return len(o.consumers()) == 4 })
	o.away()
	leaves.stop() // which ends also while the server cannot be reached
	o.restart()
	o.publish(true, 4, 300)
	o.back()
	all.want(4, 300)
	fromNow.want(4, 300)
	got := make(map[string]bool)
	for n := 3; n <= 300; n++ { // one that was on its way to the old connection comes again, after younger ones
		for !got[fmt.Sprintf(`{"waiting":%d}`, n)] {
			e, ok := durable.next()
			if !ok || e.err != nil {
				t.Fatalf("%v came (%v), and event %d did not yet", e, ok, n)
			}
			got[string(e.Data)] = true
		}
	}
	all.stop()
	fromNow.stop()
}

// A stream that was deleted and made again begins its numbers again.
func TestFollowStreamMadeAgain(t *testing.T) {
	x := newStream(t)
	f := follow(t, natskit.Connect(t, x.s), anHourAgo())
	x.publish(true, 1, 5)
	f.want(1, 5)
	if err := x.js.DeleteStream(t.Context(), events.Stream); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is made again", func() bool { // the server may still remove the folder of the one before
		return x.tryOpen() == nil
	})
	x.publish(true, 6, 8)
	f.want(6, 8)
	x.publish(true, 9, 12)
	f.want(9, 12)
}

// A stream that lost its end uses numbers again.
func TestFollowRestoredStream(t *testing.T) {
	o := newOutage(t)
	o.publish(true, 1, 2)
	o.s.Close()
	backup := t.TempDir()
	if err := os.CopyFS(backup, os.DirFS(o.cfg.StoreDir)); err != nil {
		t.Fatal(err)
	}
	o.restart()
	f := follow(t, o.connect(), anHourAgo())
	o.publish(true, 3, 6)
	f.want(1, 6)
	o.consumer()
	o.away()
	o.cfg.StoreDir = backup
	o.restart()
	o.back()
	o.consumer()
	o.publish(true, 7, 8) // as 3 and 4
	f.want(7, 8)
}

// A consumer that is lost, and a stream that is emptied, cost no event, and none comes twice.
func TestFollowLostConsumer(t *testing.T) {
	x := newStream(t)
	f := follow(t, natskit.Connect(t, x.s), anHourAgo())
	x.publish(true, 1, 5)
	f.want(1, 5)
	fromNow := follow(t, natskit.Connect(t, x.s))
	for range 2 {
		testkit.Eventually(t, "both listen", func() bool { return len(x.consumers()) == 2 })
		for _, c := range x.consumers() {
			if err := x.js.DeleteConsumer(t.Context(), events.Stream, c.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, err := x.js.Stream(t.Context(), events.Stream)
	if err != nil {
		t.Fatal(err)
	}
	x.publish(true, 6, 8)
	f.want(6, 8)
	fromNow.want(6, 8)
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.publish(true, 9, 10)
	f.want(9, 10)
}
