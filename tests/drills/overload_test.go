//go:build drills

package drills

import (
	"context"
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
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// A slowed generator runs for slowRuns in each slowPeriod. So neither its callers nor the server are the limit.
const slowRuns, slowPeriod = time.Millisecond, 50 * time.Millisecond

// flood sends requests at a rate, however many are answered.
type flood struct {
	t *testing.T
	// send sends a request for an ID, and calls done with its answer, if one comes.
	send func(done func(body string, ok bool))

	mu  sync.Mutex
	ids allocatortest.Checker
}

// round is what came of the requests of a round.
type round struct {
	sent, late, refused int
	answers, refusals   []time.Duration
}

// run sends so many requests a second for a while, and waits until their callers have given up.
func (f *flood) run(rate float64, d time.Duration) round {
	var r round
	begun := time.Now()
	for time.Since(begun) < d {
		for due := int(rate * min(time.Since(begun), d).Seconds()); r.sent < due; r.sent++ {
			sent := time.Now()
			f.send(func(body string, ok bool) { f.done(&r, time.Since(sent), body, ok) })
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(2 * hasty)
	f.mu.Lock()
	defer f.mu.Unlock()
	return r
}

func (f *flood) done(r *round, took time.Duration, body string, ok bool) {
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
	if took > hasty {
		r.late++
		return
	}
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
		nc := kit.Connect(t, url)
		inbox := nc.NewInbox()
		_, err := nc.Subscribe(inbox+".*", func(msg *nats.Msg) {
			if done, ok := waiting.LoadAndDelete(msg.Subject[len(inbox)+1:]); ok {
				done.(func(string, bool))(string(msg.Data), len(msg.Header) == 0)
			}
		})
		kit.Must(t, err)
		conns, inboxes = append(conns, nc), append(inboxes, inbox)
	}
	n := 0
	return &flood{t: t, send: func(done func(string, bool)) {
		n++
		number := strconv.Itoa(n)
		waiting.Store(number, done)
		_ = conns[n%8].PublishRequest("leaf.segment.order", inboxes[n%8]+"."+number, nil) // without an answer it counts as none
	}}
}

// floodHTTP floods the tag order through 2,000 connections. A caller that finds none free gives up: that counts as
// refused.
func floodHTTP(t *testing.T, url string) *flood {
	client := &http.Client{Timeout: 2 * hasty, Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}
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
			if body, err := io.ReadAll(resp.Body); err == nil {
				done(string(body), resp.StatusCode == http.StatusOK)
			}
		}()
	}}
}

// slow stops a generator for the most of each slowPeriod, until the test ends.
func slow(t *testing.T, g *kit.Generator) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = g.Signal(syscall.SIGSTOP) // it may have ended
			time.Sleep(slowPeriod - slowRuns)
			_ = g.Signal(syscall.SIGCONT)
			time.Sleep(slowRuns)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// Callers ask for 0.5 to 5 times as many IDs as a generator can give. No ID comes twice, and after the overload it
// answers again. The table is that of docs/speed.md.
func TestDrillOverload(t *testing.T) {
	for _, way := range []string{"joined", "embedded", "HTTP"} {
		t.Run(way, func(t *testing.T) {
			args := []string{"--tag", "order:1000000", "--http", testkit.FreeAddress(t)}
			var g *kit.Generator
			if way == "embedded" {
				g = kit.Embed(t, args...)
			} else {
				g = kit.Join(t, natskit.Start(t).ClientURL(), args...)
			}
			f := floodNATS(t, g.URL)
			if way == "HTTP" {
				f = floodHTTP(t, g.HTTP)
			}
			slow(t, g)
			capacity := f.capacity()
			t.Logf("capacity %.0f/s", capacity)
			for _, times := range []float64{0.5, 0.9, 1.5, 2, 3, 5, 0.5} {
				const d = 3 * time.Second
				r := f.run(times*capacity, d)
				t.Logf("| %.1f | %.0f | %.2f | %v, %v | %d | %d | %v, %v | %d |", times, float64(r.sent)/d.Seconds(),
					float64(len(r.answers))/d.Seconds()/capacity, quantile(r.answers, 0.5), quantile(r.answers, 0.99), r.late,
					r.refused, quantile(r.refusals, 0.5), quantile(r.refusals, 0.99), r.sent-len(r.answers)-r.late-r.refused)
			}
			testkit.Eventually(t, "most of few requests are answered in time", func() bool {
				r := f.run(100, hasty)
				return len(r.answers) > r.sent/2
			})
			if _, err := f.ids.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// capacity is how many requests a second are answered in time, at the rate at which that is most.
func (f *flood) capacity() (most float64) {
	const d = time.Second
	for rate := 500.0; ; rate *= 1.4 {
		answered := float64(len(f.run(rate, d).answers)) / d.Seconds()
		most = max(most, answered)
		if answered < 0.6*rate {
			return most
		}
	}
}
