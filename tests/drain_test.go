package tests

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A generator is told to stop with thousands of requests in its queues: each is
// answered, with IDs or with the word that it is draining.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	burst := 5000
	if raceEnabled { // it must read all in less than the 5 s after which it drops requests, also on a slow machine
		burst = 1000
	}
	server := newNATS(t)
	g := serve(t, t.TempDir(), "-s", server.ClientURL(), "--tag", "order:100000", "--tag", "coupon:100", "--max-step", "100000")
	nc := connect(t, server.ClientURL())
	tags := []string{"order", "order", "order", "coupon"} // the last waits for the store
	for _, tag := range tags {
		granted(t, ask(t, nc, "leaf.segment."+tag, ""))
	}
	var callers []*nats.Conn
	var answers []*nats.Subscription
	for range tags {
		nc := connect(t, server.ClientURL())
		sub, err := nc.SubscribeSync(nc.NewInbox())
		must(t, err)
		callers, answers = append(callers, nc), append(answers, sub)
	}
	g.freeze() // while they pile up, for less than the 5 s after which a generator drops requests
	for i, tag := range tags {
		for range burst {
			must(t, callers[i].PublishRequest("leaf.segment."+tag, answers[i].Subject, []byte("3")))
		}
		must(t, callers[i].Flush())
	}
	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGCONT)

	checkers := map[string]*allocatortest.Checker{"order": {}, "coupon": {}}
	for i, tag := range tags {
		granted, draining := 0, 0
		for range burst {
			msg, err := answers[i].NextMsg(patience)
			if err != nil {
				t.Fatalf("%s: %d requests got IDs, %d were refused, and then: %v", tag, granted, draining, err)
			}
			if len(msg.Header) > 0 {
				refused(t, msg, 503, bus.Draining)
				draining++
				continue
			}
			ranges, err := bus.ParseReply(msg.Data)
			if err != nil {
				t.Fatal(err)
			}
			checkers[tag].Add(ranges...)
			granted++
		}
		t.Logf("%s: %d requests got IDs, %d were refused", tag, granted, draining)
	}
	for tag, c := range checkers {
		if _, err := c.Check(); err != nil {
			t.Errorf("%s: %v", tag, err)
		}
	}
	if status := g.wait(patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	body := lastEvent[nodeEvent](t, jetStream(t, connect(t, server.ClientURL())), "leaf.events.info.node.stopped."+g.node)
	if body.Node != g.node || body.Version == "" || body.Address != g.url || body.Config["tag"] == "" {
		t.Errorf("event %+v", body)
	}
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
	testkit.Eventually(t, "the requests to wait", func() bool {
		return states(t, c, 1)[0].Counts.Waiting == int64(count)
	})
	return g, nc, answers
}

// refusesNew waits until a generator that is alone refuses new requests because it stops.
func refusesNew(t *testing.T, nc *nats.Conn) {
	t.Helper()
	testkit.Eventually(t, "the generator to refuse new requests", func() bool {
		msg, err := nc.Request("leaf.segment.order", nil, 100*time.Millisecond)
		return err == nil && strings.Contains(string(msg.Data), `{"code":503,"reason":"draining"`)
	})
}

// Requests wait for the store when the generator is told to stop: it takes no
// new ones, and answers these as soon as the store works.
func TestStopAnswersWaitingRequests(t *testing.T) {
	t.Parallel()
	const count = 20
	g, nc, answers := waitingRequests(t, count, "--drain-timeout", "1m")
	g.signal(syscall.SIGTERM)
	refusesNew(t, nc)
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
	refusesNew(t, nc)
	g.signal(syscall.SIGTERM)
	if status := g.wait(patience); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	if msg, err := answers.NextMsg(time.Millisecond); err == nil {
		t.Errorf("the waiting request was answered with %q", msg.Data)
	}
}
