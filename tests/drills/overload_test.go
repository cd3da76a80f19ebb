//go:build drills

package drills

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

// A slowed generator runs for slowRuns in each slowPeriod. So neither its callers nor the server are the limit.
const slowRuns, slowPeriod = time.Millisecond, 50 * time.Millisecond

// child names what a process of its own does in a drill: nats, or flood and the URL.
const child = "LEAF_DRILL_CHILD"

// begin runs a process of this test until the test ends. It answers each line with a line.
func begin(t *testing.T, what string) (ask func(line string) string) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env, cmd.Stderr = append(os.Environ(), child+"="+what), os.Stderr
	in, err := cmd.StdinPipe()
	kit.Must(t, err)
	out, err := cmd.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, cmd.Start())
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	return func(line string) string {
		t.Helper()
		_, err := fmt.Fprintln(in, line)
		kit.Must(t, err)
		for lines.Scan() {
			if answer, ok := strings.CutPrefix(lines.Text(), "= "); ok {
				return answer
			}
		}
		t.Fatalf("%s has ended", what)
		return ""
	}
}

// TestChild is what a process does that begin has started.
func TestChild(t *testing.T) {
	what, url, _ := strings.Cut(os.Getenv(child), " ")
	var answer func(line string) any
	switch {
	case what == "nats":
		s := natskit.Start(t)
		answer = func(string) any { return s.ClientURL() }
	case strings.HasPrefix(url, "http"):
		answer = floodHTTP(t, url).answer
	case what == "flood":
		answer = floodNATS(t, url).answer
	default:
		return // it is no such process
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		text, err := json.Marshal(answer(lines.Text()))
		kit.Must(t, err)
		fmt.Printf("= %s\n", text)
	}
}

// flood sends requests at a rate, however many are answered. It runs in a process of its own.
type flood struct {
	t *testing.T
	// send sends a request for an ID, and calls done with its answer, if one comes.
	send func(done func(body string, ok bool))

	mu  sync.Mutex
	ids allocatortest.Checker
}

// round is what came of the requests of a round.
type round struct {
	Sent, Answered, Late, Refused int
	Answers, Refusals             [2]time.Duration // half and 99 of 100 took at most so long
	Wrong                         string           // an ID came twice

	answers, refusals []time.Duration
}

// answer sends requests at a rate for a time, both in the line, and waits until their callers have given up.
func (f *flood) answer(line string) any {
	var rate float64
	var d time.Duration
	_, err := fmt.Sscan(line, &rate, &d)
	kit.Must(f.t, err)
	r := new(round)
	begun := time.Now()
	for time.Since(begun) < d {
		for due := int(rate * min(time.Since(begun), d).Seconds()); r.Sent < due; r.Sent++ {
			sent := time.Now()
			f.send(func(body string, ok bool) { f.done(r, time.Since(sent), body, ok) })
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(2 * hasty)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, q := range []float64{0.5, 0.99} {
		r.Answers[i], r.Refusals[i] = quantile(r.answers, q), quantile(r.refusals, q)
	}
	if _, err := f.ids.Check(); err != nil {
		r.Wrong = err.Error()
	}
	return *r
}

func (f *flood) done(r *round, took time.Duration, body string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !ok {
		r.Refused++
		r.refusals = append(r.refusals, took)
		return
	}
	ranges, err := wire.ParseReply([]byte(body))
	if err != nil {
		f.t.Errorf("an answer is %q: %v", body, err)
	}
	f.ids.Add(ranges...)
	if took > hasty {
		r.Late++
		return
	}
	r.Answered++
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
// answers again. The table is that of docs/guarantees.md#speed.
func TestDrillOverload(t *testing.T) {
	for _, way := range []string{"joined", "embedded", "HTTP"} {
		t.Run(way, func(t *testing.T) {
			args := []string{"--tag", "order:1000000", "--http", testkit.FreeAddress(t)}
			var g *kit.Generator
			if way == "embedded" {
				g = kit.Embed(t, args...)
			} else {
				g = kit.Join(t, strings.Trim(begin(t, "nats")(""), `"`), args...)
			}
			url := g.URL
			if way == "HTTP" {
				url = g.HTTP
			}
			ask := begin(t, "flood "+url)
			slow(t, g)
			run := func(rate float64, d time.Duration) (r round) {
				kit.Must(t, json.Unmarshal([]byte(ask(fmt.Sprintf("%f %d", rate, d))), &r))
				if r.Wrong != "" {
					t.Error(r.Wrong)
				}
				return r
			}
			capacity := capacity(run)
			t.Logf("capacity %.0f/s", capacity)
			for _, times := range []float64{0.5, 0.8, 1.5, 3, 5, 0.5} {
				const d = 3 * time.Second
				r := run(times*capacity, d)
				t.Logf("| %.1f | %.0f | %.2f | %v | %d | %d | %v | %d |", times, float64(r.Sent)/d.Seconds(),
					float64(r.Answered)/d.Seconds()/capacity, r.Answers, r.Late, r.Refused, r.Refusals,
					r.Sent-r.Answered-r.Late-r.Refused)
			}
			testkit.Eventually(t, "most of few requests are answered in time", func() bool {
				r := run(100, hasty)
				return r.Answered > r.Sent/2
			})
		})
	}
}

// capacity is how many requests a second are answered in time, at the rate at which that is most.
func capacity(run func(rate float64, d time.Duration) round) (most float64) {
	const d = time.Second
	for rate, fewer := 500.0, 0; fewer < 2; rate *= 1.4 { // once may be a slow moment of the machine
		answered := float64(run(rate, d).Answered) / d.Seconds()
		most = max(most, answered)
		if answered < 0.6*rate {
			fewer++
		} else {
			fewer = 0
		}
	}
	return most
}
