package generator_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// unread is a connection to NATS on which writes hang.
type unread struct {
	net.Conn
	hangs   *atomic.Bool
	reached chan struct{}
	over    chan struct{}
}

func (c unread) Write(b []byte) (int, error) {
	if c.hangs.Load() {
		select {
		case c.reached <- struct{}{}:
		default:
		}
		<-c.over
	}
	return c.Conn.Write(b)
}

// unreadDialer makes them.
type unreadDialer struct{ unread }

func (d *unreadDialer) Dial(network, address string) (net.Conn, error) {
	nc, err := net.Dial(network, address)
	c := d.unread
	c.Conn = nc
	return c, err
}

// A NATS server that does not read holds up a write, and with it the lock of the connection.
// What comes over HTTP is answered from memory.
func TestWriteHangs(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	d := &unreadDialer{unread{hangs: new(atomic.Bool), reached: make(chan struct{}, 1), over: make(chan struct{})}}
	nc, err := nats.Connect(s.ClientURL(), nats.SetCustomDialer(d))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, s, "a", memory(t, "order"), func(c *generator.Config) { c.Conn, c.JS = nc, js })
	if _, err := g.Take(t.Context(), "order", 1); err != nil {
		t.Fatal(err)
	}
	d.hangs.Store(true)
	defer close(d.over)
	<-d.reached // a heartbeat, in a second
	answered := make(chan error, 2)
	go func() {
		_, err := g.Take(t.Context(), "order", 1)
		answered <- err
		_, err = g.Snowflakes(t.Context(), 1)
		answered <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for range cap(answered) {
		select {
		case err := <-answered:
			if err != nil {
				t.Error(err)
			}
		case <-ctx.Done():
			t.Fatal("a request waits for the connection")
		}
	}
	if !g.Wanted(generator.SegmentKind) || !g.Wanted(generator.SnowflakeKind) {
		t.Error("no more requests are wanted")
	}
}
