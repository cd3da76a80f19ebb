package tests

import (
	"bytes"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/proxy"
)

// presence is the subject of heartbeats.
const presence = "leaf.internal.presence"

// onTwoServers starts a generator that has two servers of a cluster in its list. The way to the first one, to
// which it is connected, goes through a proxy.
func onTwoServers(t *testing.T) (c *threeServers, g *generator, link *proxy.Proxy) {
	t.Helper()
	c = newThreeServers(t)
	link, err := proxy.Start(strings.TrimPrefix(c.url(0), "nats://"))
	must(t, err)
	t.Cleanup(link.Close)
	for link.Addr() != "" { // nats.go takes a server of the list at random
		g = serve(t, t.TempDir(), "-s", "nats://"+link.Addr()+","+c.url(1), "--tag", "order")
		if g.url == "nats://"+link.Addr() {
			return c, g, link
		}
		g.stop()
	}
	return nil, nil, nil
}

// awaitAnswers waits until ten requests in a row are answered, and returns how long that took.
func awaitAnswers(t *testing.T, nc *nats.Conn, subject string) time.Duration {
	t.Helper()
	began, row := time.Now(), 0
	testkit.Eventually(t, "answers", func() bool {
		for row < 10 {
			if _, err := nc.Request(subject, nil, 100*time.Millisecond); err != nil {
				row = 0
				return false
			}
			row++
		}
		return true
	})
	return time.Since(began).Round(time.Millisecond)
}

// A generator goes to another server of its list when its server hangs.
func TestGeneratorLeavesAServerThatHangs(t *testing.T) {
	t.Parallel()
	c, g, link := onTwoServers(t)
	caller := connect(t, c.url(2))
	awaitAnswers(t, caller, bus.SubjectSegment+".order")
	awaitAnswers(t, caller, bus.SubjectSnowflake)
	link.Hang(true)
	hung := time.Now()
	testkit.Eventually(t, "another server", func() bool { return strings.Contains(g.stderr.String(), "connected to NATS again") })
	t.Logf("it was connected again after %v", time.Since(hung).Round(time.Millisecond))
	awaitAnswers(t, caller, bus.SubjectSegment+".order")
	awaitAnswers(t, caller, bus.SubjectSnowflake)
	t.Logf("all was served again after %v", time.Since(hung).Round(time.Millisecond))
	g.stop()
}

// A generator reconnects if its server answers pings, but passes its heartbeats on no more.
func TestGeneratorLeavesAServerThatIsDeaf(t *testing.T) {
	t.Parallel()
	c, g, link := onTwoServers(t)
	link.OnRequest(func(data []byte) proxy.Action {
		if bytes.Contains(data, []byte(presence)) && !bytes.Contains(data, []byte("SUB ")) {
			return proxy.Drop
		}
		return proxy.Forward
	})
	deaf := time.Now()
	testkit.Eventually(t, "another server", func() bool { return strings.Contains(g.stderr.String(), "connected to NATS again") })
	t.Logf("it was connected again after %v", time.Since(deaf).Round(time.Millisecond))
	if log := g.stderr.String(); !strings.Contains(log, "heartbeats do not come back") {
		t.Errorf("it reconnected for another reason: %s", log)
	}
	awaitAnswers(t, connect(t, c.url(2)), bus.SubjectSegment+".order")
	g.stop()
}

// A server of the cluster that hangs gets no requests after some seconds: its generator cannot answer.
func TestServersDropOneThatHangs(t *testing.T) {
	t.Parallel()
	c := newThreeServers(t)
	for i := range 2 {
		_, err := connect(t, c.url(i)).QueueSubscribe("x", "q", func(msg *nats.Msg) { _ = msg.Respond(nil) })
		must(t, err)
		c.awaitRoute(i, 2)
	}
	caller := connect(t, c.url(2))
	awaitAnswers(t, caller, "x")
	for j := 1; j < 3; j++ {
		c.routes[0][j].Hang(true)
		c.routes[j][0].Hang(true)
	}
	hung, failed := time.Now(), time.Duration(0)
	for time.Since(hung) < failed+2*time.Second { // until nothing failed for 2 s
		if _, err := caller.Request("x", nil, 100*time.Millisecond); err != nil {
			failed = time.Since(hung)
		}
		if failed > testkit.Patience {
			t.Fatal("half of the requests fail all the while")
		}
	}
	t.Logf("requests failed for %v", failed.Round(time.Millisecond))
}

// A generator that stood still drops the requests of that time: their callers have given up, so answers would
// only use up IDs. The NATS server does not notice the standstill, so it keeps these requests.
func TestRequestsOfAStandstillAreDropped(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, conf, `ping_interval: "2m"`)
	url := newNATSFrom(t, conf).ClientURL()
	g := serve(t, t.TempDir(), "-s", url, "--tag", "order:1000000")
	nc := connect(t, url)
	number := func(msg *nats.Msg) int64 {
		n, err := strconv.ParseInt(string(msg.Data), 10, 64)
		must(t, err)
		return n
	}
	before := number(ask(t, nc, bus.SubjectSegment+".order", ""))
	ask(t, nc, bus.SubjectSnowflake, "")
	g.freeze()
	frozen := time.Now()
	inbox := nc.NewInbox()
	late, err := nc.SubscribeSync(inbox)
	must(t, err)
	for time.Since(frozen) < 8*time.Second {
		for range 10 {
			must(t, nc.PublishRequest(bus.SubjectSegment+".order", inbox, []byte("10")))
			must(t, nc.PublishRequest(bus.SubjectSnowflake, inbox, []byte("10")))
		}
		must(t, nc.Flush())
		time.Sleep(10 * time.Millisecond)
	}
	g.signal(syscall.SIGCONT)
	thawed := time.Now()
	var after, sent int64
	testkit.Eventually(t, "an answer", func() bool {
		sent++
		msg, err := nc.Request(bus.SubjectSegment+".order", nil, 100*time.Millisecond)
		if err == nil {
			after = number(msg)
		}
		return err == nil
	})
	took := time.Since(thawed).Round(time.Millisecond)
	awaitAnswers(t, nc, bus.SubjectSnowflake)
	if after > before+sent { // an answer may come after 100 ms
		t.Errorf("the next ID after %d is %d, so requests from the standstill used up IDs", before, after)
	}
	if n, _, err := late.Pending(); n > 0 || err != nil {
		t.Errorf("%d requests from the standstill were answered: %v", n, err)
	}
	t.Logf("a request was answered %v after the standstill", took)
	if n := strings.Count(g.stderr.String(), "requests that came meanwhile are dropped"); n != 1 {
		t.Errorf("that requests were dropped was logged %d times", n)
	}
	g.stop()
}
