package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
)

// A generator is told to stop under load, with thousands of requests in
// its queues. Each that reached it is answered: with IDs, or with the word that it
// is draining. The others learn at once from NATS that nobody is there. None is
// left without an answer.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	const callers, burst = 4, 5000
	server := newNATS(t)
	g := serve(t, t.TempDir(), "-s", server.ClientURL(), "--tag", "order:100", "--tag", "coupon:3", "--max-step", "100")
	checkers := map[string]*allocatortest.Checker{"order": {}, "coupon": {}}
	var answered, stopped atomic.Int64
	failures := make(chan error, callers)
	var running sync.WaitGroup
	for i := range callers {
		nc := connect(t, server.ClientURL())
		tag := "order"
		if i%2 == 0 {
			tag = "coupon"
		}
		running.Go(func() {
			for stopped.Load() == 0 {
				if err := sendBurst(nc, tag, burst, checkers[tag], &answered, &stopped); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	eventually(t, "answers", func() bool { return answered.Load() > 1000 })
	g.stop()
	running.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	t.Logf("%d answers with IDs, %d that nobody is there", answered.Load(), stopped.Load())
	for tag, c := range checkers {
		if _, err := c.Check(); err != nil {
			t.Errorf("%s: %v", tag, err)
		}
	}
	body := lastEvent[nodeEvent](t, jetStream(t, connect(t, server.ClientURL())), "leaf.events.info.node.stopped."+g.node)
	if body.Node != g.node || body.Version == "" || body.Address != g.url || body.Config["tag"] == "" {
		t.Errorf("event %+v", body)
	}
}

// sendBurst sends requests all at once, and demands an answer to each.
func sendBurst(nc *nats.Conn, tag string, burst int, checker *allocatortest.Checker, answered, stopped *atomic.Int64) error {
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer answers.Unsubscribe()
	for range burst {
		if err := nc.PublishRequest("leaf.segment."+tag, inbox, []byte("3")); err != nil {
			return err
		}
	}
	for i := range burst {
		msg, err := answers.NextMsg(patience)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			stopped.Add(1)
		case err != nil:
			return fmt.Errorf("%d of %d requests were answered: %w", i, burst, err)
		case len(msg.Header) == 0:
			ranges, err := bus.ParseReply(msg.Data)
			if err != nil {
				return err
			}
			checker.Add(ranges...)
			answered.Add(1)
		case !bytes.Contains(msg.Data, []byte(`"reason":"draining"`)):
			return fmt.Errorf("answered %s", msg.Data)
		}
	}
	return nil
}

// nodeEvent is the body of the events of start and stop.
type nodeEvent struct {
	Node, Version, Address string
	Config                 map[string]string
}

// waitingRequests starts a generator whose store cannot be written, and leaves
// so many requests with it that wait for it.
func waitingRequests(t *testing.T, count int, args ...string) (*generator, *nats.Conn, *nats.Subscription) {
	t.Helper()
	g := embed(t, append([]string{"--tag", "order:10", "--max-step", "10", "--max-wait", "1m"}, args...)...)
	nc := connect(t, g.url)
	breakStore(t, jetStream(t, nc), true)
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for range count {
		if err := nc.PublishRequest("leaf.segment.order", inbox, []byte("5")); err != nil {
			t.Fatal(err)
		}
	}
	c := bus.NewClient(nc)
	eventually(t, "the requests to wait", func() bool {
		return states(t, c, 1)[0].Counts.Waiting == int64(count)
	})
	return g, nc, answers
}

// gone waits until no generator is left for new requests.
func gone(t *testing.T, nc *nats.Conn) {
	t.Helper()
	eventually(t, "the generator to leave its queue group", func() bool {
		_, err := nc.Request("leaf.segment.order", nil, 100*time.Millisecond)
		return errors.Is(err, nats.ErrNoResponders)
	})
}

// Requests wait for the store when the generator is told to stop: it takes no
// new ones, and answers these as soon as the store works.
func TestStopAnswersWaitingRequests(t *testing.T) {
	t.Parallel()
	const count = 20
	g, nc, answers := waitingRequests(t, count, "--drain-timeout", "1m")
	g.signal(syscall.SIGTERM)
	gone(t, nc)
	breakStore(t, jetStream(t, nc), false)
	var checker allocatortest.Checker
	for i := range count {
		msg, err := answers.NextMsg(patience)
		if err != nil {
			t.Fatalf("%d of %d answers came: %v", i, count, err)
		}
		granted(t, msg)
		ranges, err := bus.ParseReply(msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		checker.Add(ranges...)
	}
	if ids, err := checker.Check(); err != nil || ids != 5*count {
		t.Errorf("%d IDs came, want %d: %v", ids, 5*count, err)
	}
	if status := g.wait(patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// When the time for that is over, they are refused, and not forgotten.
func TestStopRefusesWaitingRequestsInTheEnd(t *testing.T) {
	t.Parallel()
	const count = 20
	g, _, answers := waitingRequests(t, count, "--drain-timeout", "200ms")
	g.signal(os.Interrupt)
	for i := range count {
		msg, err := answers.NextMsg(patience)
		if err != nil {
			t.Fatalf("%d of %d answers came: %v", i, count, err)
		}
		refused(t, msg, 503, bus.Draining)
	}
	if status := g.wait(patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	g, nc, answers := waitingRequests(t, 1, "--drain-timeout", "10m")
	g.signal(syscall.SIGTERM)
	gone(t, nc)
	g.signal(syscall.SIGTERM)
	if status := g.wait(patience); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	if msg, err := answers.NextMsg(time.Millisecond); err == nil {
		t.Errorf("the waiting request was answered with %q", msg.Data)
	}
}
