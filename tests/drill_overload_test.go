//go:build drills

package tests

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

const (
	// inTime is how long the callers of a flood wait.
	inTime = 500 * time.Millisecond
	// A slowed generator runs for slowRuns in each slowPeriod, so that callers and server are not the limit.
	slowRuns, slowPeriod = time.Millisecond, 50 * time.Millisecond
)

// flood sends requests at a rate, however many are answered.
type flood struct {
	t *testing.T
	// send sends a request for an ID, and calls done with its answer, if one comes.
	send func(done func(body string, ok bool))

	mu  sync.Mutex
	ids allocatortest.Checker
}

// floodRound is what came of the requests of a round.
type floodRound struct {
	sent, answered, late, refused int
	answers, refusals             []time.Duration
}

// run sends so many requests a second for a while, and waits until their callers have given up.
func (f *flood) run(rate float64, d time.Duration) *floodRound {
	r := new(floodRound)
	begun := time.Now()
	for time.Since(begun) < d {
		for due := int(rate * min(time.Since(begun), d).Seconds()); r.sent < due; r.sent++ {
			sent := time.Now()
			f.send(func(body string, ok bool) { f.done(r, time.Since(sent), body, ok) })
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(2 * inTime)
	f.mu.Lock()
	defer f.mu.Unlock()
	copied := *r
	return &copied
}

func (f *flood) done(r *floodRound, took time.Duration, body string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !ok {
		r.refused++
		r.refusals = append(r.refusals, took)
		return
	}
	ranges, err := bus.ParseReply([]byte(body))
	if err != nil {
		f.t.Errorf("an answer is %q: %v", body, err)
	}
	f.ids.Add(ranges...)
	if took > inTime {
		r.late++
		return
	}
	r.answered++
	r.answers = append(r.answers, took)
}

// quantile returns that of the times.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[int(q*float64(len(times)-1))].Round(100 * time.Microsecond)
}

// floodNATS floods the tag order through 8 connections.
func floodNATS(t *testing.T, url string) *flood {
	var conns []*nats.Conn
	var inboxes []string
	var waiting sync.Map // by number
	for range 8 {
		nc := connect(t, url)
		inbox := nc.NewInbox()
		_, err := nc.Subscribe(inbox+".*", func(msg *nats.Msg) {
			if done, ok := waiting.LoadAndDelete(msg.Subject[len(inbox)+1:]); ok {
				done.(func(string, bool))(string(msg.Data), len(msg.Header) == 0)
			}
		})
		must(t, err)
		conns, inboxes = append(conns, nc), append(inboxes, inbox)
	}
	n := 0
	return &flood{t: t, send: func(done func(string, bool)) {
		n++
		number := strconv.Itoa(n)
		waiting.Store(number, done)
		_ = conns[n%8].PublishRequest("leaf.segment.order", inboxes[n%8]+"."+number, nil) // none comes if the connection is lost
	}}
}

// floodHTTP floods the tag order through 2,000 connections. A caller that finds none free gives up at once: that counts as refused.
func floodHTTP(t *testing.T, url string) *flood {
	client := &http.Client{Timeout: 2 * inTime, Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}
	t.Cleanup(client.CloseIdleConnections)
	free := make(chan struct{}, 2000)
	return &flood{t: t, send: func(done func(string, bool)) {
		select {
		case free <- struct{}{}:
		default:
			done("", false)
			return
		}
		go func() {
			defer func() { <-free }()
			resp, err := client.Get(url + "/api/segment/get/order")
			if err != nil {
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil {
				done(string(body), resp.StatusCode == 200)
			}
		}()
	}}
}

// slow stops the process for the most of each slowPeriod, until the test ends.
func (p *process) slow() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = p.cmd.Process.Signal(syscall.SIGSTOP) // it may have ended
			time.Sleep(slowPeriod - slowRuns)
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
			time.Sleep(slowRuns)
		}
	})
	p.t.Cleanup(func() { cancel(); wg.Wait() })
}

// Callers ask for 0.5 to 5 times as many IDs as a generator can give. No ID comes twice, and after the overload it answers again.
// The table is that of docs/speed.md.
func TestDrillOverload(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T) (*generator, *flood){
		"joined": func(t *testing.T) (*generator, *flood) {
			url := newNATS(t).ClientURL()
			return serve(t, t.TempDir(), "-s", url, "--tag", "order:1000000"), floodNATS(t, url)
		},
		"embedded": func(t *testing.T) (*generator, *flood) {
			g := embed(t, "--tag", "order:1000000")
			return g, floodNATS(t, g.url)
		},
		"HTTP": func(t *testing.T) (*generator, *flood) {
			g := serve(t, t.TempDir(), "-s", newNATS(t).ClientURL(), "--tag", "order:1000000", "--http", testkit.FreeAddress(t))
			return g, floodHTTP(t, g.http)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, f := begin(t)
			g.slow()
			capacity := f.capacity()
			t.Logf("capacity %.0f/s", capacity)
			for _, times := range []float64{0.5, 0.9, 1.5, 2, 3, 5, 0.5} {
				const d = 3 * time.Second
				r := f.run(times*capacity, d)
				t.Log(r.row(times, capacity, d))
			}
			testkit.Eventually(t, "most of few requests to be answered in time", func() bool {
				r := f.run(100, inTime)
				return r.answered > r.sent/2
			})
			if _, err := f.ids.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// capacity is how many requests a second are answered in time, at the rate where that is most.
func (f *flood) capacity() (most float64) {
	const d = time.Second
	for rate := 500.0; ; rate *= 1.4 {
		r := f.run(rate, d)
		answered := float64(r.answered) / d.Seconds()
		most = max(most, answered)
		if answered < 0.6*rate {
			return most
		}
	}
}

// row is a row of the table of docs/speed.md.
func (r *floodRound) row(times, capacity float64, d time.Duration) string {
	return fmt.Sprintf("| %.1f | %.0f | %.2f | %v, %v | %d | %d | %v, %v | %d |", times, float64(r.sent)/d.Seconds(),
		float64(r.answered)/d.Seconds()/capacity, quantile(r.answers, 0.5), quantile(r.answers, 0.99), r.late,
		r.refused, quantile(r.refusals, 0.5), quantile(r.refusals, 0.99), r.sent-r.answered-r.late-r.refused)
}
