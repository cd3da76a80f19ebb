package generator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

// blind are records whose watch brings only what was there when it began. It may not begin again.
type blind struct {
	allocator.Records
	away   atomic.Bool
	before func() // Sync; nil: nothing
}

func (s *blind) Watch(ctx context.Context, f func(allocator.Update)) error {
	return s.Records.Watch(ctx, func(u allocator.Update) {
		if u.First {
			f(u)
		}
	})
}

func (s *blind) Sync(ctx context.Context) error {
	if s.away.Load() {
		return errors.New("unplugged")
	}
	if s.before != nil {
		s.before()
	}
	return s.Records.Sync(ctx)
}

// behind runs a generator that is connected through a proxy.
func behind(t *testing.T, s *embedded.Server, node string, records allocator.Records, change func(*generator.Config)) (*running, *kit.Link) {
	t.Helper()
	link, err := kit.StartLink(strings.TrimPrefix(s.ClientURL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	nc, err := nats.Connect("nats://"+link.Addr(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, s, node, records, func(c *generator.Config) {
		c.Conn, c.JS, c.MaxWait = nc, js, testkit.Patience
		if change != nil {
			change(c)
		}
	}), link
}

// moveTo moves max_id, by several commands at a time until a generator that is not cut off
// gets one, and returns the generators that were not heard.
func moveTo(t *testing.T, nc *nats.Conn, tag string, maxID bus.ID) []string {
	t.Helper()
	var unheard []string
	testkit.Eventually(t, "max_id is moved", func() bool {
		const commands = 8
		changed := make(chan *admin.TagRecord, commands)
		for range commands {
			go func() {
				c, err := admin.NewClient(nc).UpdateTag(context.Background(), admin.TagSpec{Tag: tag, MaxID: &maxID})
				if err != nil {
					changed <- nil
					return
				}
				changed <- &c
			}()
		}
		moved := false
		for range commands {
			if c := <-changed; c != nil {
				moved, unheard = true, c.Unheard
			}
		}
		return moved
	})
	return unheard
}

// While the records do not say what operators have set, a generator that was cut off goes on with
// an alert, and drops what is below as soon as it hears.
func TestFloorsUnknown(t *testing.T) {
	t.Parallel()
	s := natskit.StartWith(t, configured(t, `ping_interval: "2m"`)) // else the server may end the connection that hangs
	nc := natskit.Connect(t, s)
	memory := memory(t, "order")
	store := &blind{Records: memory.Open()}
	cut, link := behind(t, s, "cut", store, nil)
	stream := eventsOn(t, nc)
	if _, err := cut.Take(t.Context(), "order", 1); err != nil {
		t.Fatal(err)
	}
	start(t, s, "other", memory, nil)
	store.away.Store(true)
	link.Hang(true)
	moveTo(t, nc, "order", 1_000_000)
	link.Hang(false)
	testkit.Eventually(t, "the alert", func() bool { return len(stream("leaf.node.stale")) == 1 })
	if e := stream("leaf.node.stale")[0]; e.Key != "cut" || e.Severity != "alert" || e.Body.(events.Stale).Error != "unplugged" {
		t.Errorf("the alert is %+v", e)
	}
	if _, err := cut.Take(t.Context(), "order", 1); err != nil {
		t.Errorf("it does not go on: %v", err)
	}
	store.away.Store(false)
	testkit.Eventually(t, "the end of the alert", func() bool {
		return slices.ContainsFunc(stream("leaf.node.recovered"), func(e events.Event) bool { return e.Body.(events.Recovered).Episode == "stale" })
	})
	if ranges, err := cut.Take(t.Context(), "order", 1); err != nil || ranges[0].First < 1_000_000 {
		t.Errorf("afterwards: %v, %v", ranges, err)
	}
	if n := len(stream("leaf.node.stale")); n != 1 {
		t.Errorf("%d alerts", n)
	}
}

// A generator that was cut off, in whatever way, hands out no ID below the max_id that an operator set meanwhile.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*kit.Link, bool){
		"cut":               (*kit.Link).Refuse,
		"silent":            (*kit.Link).Hang,
		"silent, one way":   (*kit.Link).HangAnswers,
		"silent, the other": (*kit.Link).HangRequests,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.StartWith(t, configured(t, `ping_interval: "2m"`))
			nc := natskit.Connect(t, s)
			memory := memory(t, "order")
			var cut *running
			var isCut atomic.Bool
			records := &blind{Records: memory.Open(), before: func() { // so that a request comes first
				for end := time.Now().Add(500 * time.Millisecond); isCut.Load() && time.Now().Before(end) && cut.State().Counts.Waiting == 0; {
					time.Sleep(time.Millisecond)
				}
			}}
			c, link := behind(t, s, "cut", records, nil)
			cut = c
			if _, err := cut.Take(t.Context(), "order", 1); err != nil {
				t.Fatal(err)
			}
			other := start(t, s, "other", memory, nil)
			fault(link, true)
			testkit.Eventually(t, "it is not heard", func() bool { return !other.Hears("cut") })
			if unheard := moveTo(t, nc, "order", 1_000_000); !slices.Equal(unheard, []string{"cut"}) {
				t.Errorf("not heard: %v", unheard)
			}
			if err := other.stop(); err != nil {
				t.Fatal(err)
			}
			isCut.Store(true)
			fault(link, false)
			testkit.Eventually(t, "it answers", func() bool {
				msg, err := nc.Request("leaf.segment.order", nil, 2*time.Second)
				if err != nil {
					return false
				}
				ranges, err := wire.ParseReply(msg.Data)
				if err == nil && ranges[0].First < 1_000_000 {
					t.Errorf("it answers %v", ranges)
				}
				return err == nil
			})
		})
	}
}
