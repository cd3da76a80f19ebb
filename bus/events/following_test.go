package events_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// stream is a NATS server with the stream of events, and a connection that publishes there.
type stream struct {
	t  *testing.T
	s  *embedded.Server
	nc *nats.Conn
	js jetstream.JetStream
}

func newStream(t *testing.T) *stream {
	t.Helper()
	return openStream(t, natskit.Start(t))
}

func openStream(t *testing.T, s *embedded.Server) *stream {
	t.Helper()
	nc := natskit.Connect(t, s)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	x := &stream{t, s, nc, js}
	if err := x.tryOpen(); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *stream) tryOpen() error {
	kept := kvstore.Events{Config: kvstore.Config{JS: x.js, Log: testkit.Quiet}, MaxBytes: 4 << 20}
	return kept.Open(x.t.Context())
}

// message is an event: an alert that is known, or what is not known here.
func message(alert bool, n int) *nats.Msg {
	msg := nats.NewMsg("leaf.events.info.test.number.k")
	if alert {
		msg.Subject = "leaf.events.alert.segment.starved.order"
	}
	msg.Header.Set("ce-time", time.Now().UTC().Format(time.RFC3339Nano))
	msg.Data = fmt.Appendf(nil, `{"waiting":%d}`, n)
	return msg
}

// publish publishes events, numbered from first to last.
func (x *stream) publish(alert bool, first, last int) {
	x.t.Helper()
	for n := first; n <= last; n++ {
		x.keep(message(alert, n))
	}
}

func (x *stream) keep(msg *nats.Msg) {
	x.t.Helper()
	if _, err := x.js.PublishMsg(x.t.Context(), msg); err != nil {
		x.t.Fatal(err)
	}
}

// consumers returns those that the stream has.
func (x *stream) consumers() (all []*jetstream.ConsumerInfo) {
	x.t.Helper()
	s, err := x.js.Stream(x.t.Context(), events.Stream)
	if err != nil {
		x.t.Fatal(err)
	}
	list := s.ListConsumers(x.t.Context())
	for c := range list.Info() {
		all = append(all, c)
	}
	if err := list.Err(); err != nil {
		x.t.Fatal(err)
	}
	return all
}

// consumer waits for the only one of the stream.
func (x *stream) consumer() *jetstream.ConsumerInfo {
	x.t.Helper()
	var found []*jetstream.ConsumerInfo
	testkit.Eventually(x.t, "there is a consumer", func() bool {
		found = x.consumers()
		return len(found) == 1
	})
	return found[0]
}

// came is what a loop over events got.
type came struct {
	events.Event
	err error
}

func (c came) String() string {
	if c.err != nil {
		return "error: " + c.err.Error()
	}
	return string(c.Data)
}

// following is a loop over events in a goroutine. It takes the next one when the
// one before was taken from it.
type following struct {
	t    *testing.T
	all  chan came
	stop func() // and wait until it has ended
}

func follow(t *testing.T, nc *nats.Conn, opts ...events.Option) *following {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return followIn(t, js, opts...)
}

func followIn(t *testing.T, js jetstream.JetStream, opts ...events.Option) *following {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &following{t: t, all: make(chan came)}
	go func() {
		defer close(f.all)
		for e, err := range events.Follow(ctx, js, opts...) {
			select {
			case f.all <- came{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	f.stop = sync.OnceFunc(func() {
		cancel()
		for last := range f.all {
			_ = last // what it had already
		}
	})
	t.Cleanup(f.stop)
	return f
}

// next returns what comes next, and false at the end.
func (f *following) next() (came, bool) {
	f.t.Helper()
	select {
	case c, ok := <-f.all:
		return c, ok
	case <-time.After(testkit.Patience):
		f.t.Fatal("nothing comes, and it does not end")
		panic("unreachable")
	}
}

// want checks that the events from first to last are the next ones.
func (f *following) want(first, last int) {
	f.t.Helper()
	for n := first; n <= last; n++ {
		if c, ok := f.next(); !ok || c.err != nil || string(c.Data) != fmt.Sprintf(`{"waiting":%d}`, n) {
			f.t.Fatalf("%v came (%v), want event %d", c, ok, n)
		}
	}
}

// fails checks that an error with these texts is the next and the last.
func (f *following) fails(texts ...string) error {
	f.t.Helper()
	c, ok := f.next()
	if !ok || c.err == nil {
		f.t.Fatalf("%v came (%v), want an error", c, ok)
	}
	for _, text := range texts {
		if !strings.Contains(c.err.Error(), text) {
			f.t.Errorf("the error %q does not say %q", c.err, text)
		}
	}
	if more, ok := f.next(); ok {
		f.t.Errorf("after the error %v came", more)
	}
	return c.err
}

// anHourAgo is before all events of a test.
func anHourAgo() events.Option { return events.Since(time.Now().Add(-time.Hour)) }
