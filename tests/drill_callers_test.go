//go:build drills

package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
)

const (
	plainDeadline = 2 * time.Second       // of callers that know only NATS, or only HTTP
	callersPause  = 10 * time.Millisecond // between the calls of one caller
	callersBatch  = 10                    // IDs in each request
	// callersEnv is a file to which the lines of the drills are appended, to compare two versions.
	callersEnv = "LEAF_TEST_CALLERS"
)

// callers are callers of all kinds at once. They print what they met before and after a fault.
type callers struct {
	t      *testing.T
	tags   []string              // their load is uneven: the first one gets most
	token  string                // of HTTP
	unjust func(tag string) bool // reports after a call for a tag failed whether a generator had enough IDs for it

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	fault  atomic.Pointer[time.Time]
	taken  map[string]*allocatortest.Checker // by tag; "" has the snowflakes
	kinds  []*callerKind
}

// callerKind is what all callers of one kind met.
type callerKind struct {
	name   string
	mu     sync.Mutex
	phases [2]callerPhase // before and after the fault began
	unjust int            // calls that failed although a generator had enough IDs
}

type callerPhase struct {
	calls, refused, timedOut int
	gap                      time.Duration // the longest time without an answer for one caller
	last                     time.Duration // when the last call began that failed, since the fault began
	reasons                  map[string]int
}

// newCallers returns callers that do nothing yet.
func newCallers(t *testing.T, tags ...string) *callers {
	t.Helper()
	c := &callers{t: t, tags: tags, taken: map[string]*allocatortest.Checker{"": {}}}
	for _, tag := range tags {
		c.taken[tag] = &allocatortest.Checker{}
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	t.Cleanup(c.end)
	return c
}

func (c *callers) end() {
	c.cancel()
	c.wg.Wait()
}

// ask starts two callers of each kind that uses NATS. They are connected to the first of the URLs as long as it lives.
func (c *callers) ask(where string, urls ...string) {
	c.t.Helper()
	// As docs/cluster.md advises: a server that hangs is noticed within seconds.
	opts := []nats.Option{nats.DontRandomize(), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2)}
	for _, flakes := range []bool{false, true} {
		nc := connect(c.t, strings.Join(urls, ","), opts...)
		c.start("nats"+where, flakes, plainDeadline, func(ctx context.Context, tag string) ([]bus.Range, error) {
			subject := bus.SubjectSnowflake
			if tag != "" {
				subject = bus.SubjectSegment + "." + tag
			}
			msg, err := nc.RequestWithContext(ctx, subject, fmt.Append(nil, callersBatch))
			if err != nil {
				return nil, err
			}
			if code := msg.Header.Get("Nats-Service-Error-Code"); code != "" {
				return nil, errors.New(string(msg.Data))
			}
			return bus.ParseReply(msg.Data)
		})
		for _, deadline := range []time.Duration{probeDeadline, 5 * time.Second} {
			client := bus.NewClient(connect(c.t, strings.Join(urls, ","), opts...))
			c.start(fmt.Sprintf("client %v%s", deadline, where), flakes, deadline, func(ctx context.Context, tag string) ([]bus.Range, error) {
				if tag != "" {
					return client.Take(ctx, tag, callersBatch)
				}
				return client.Snowflakes(ctx, callersBatch)
			})
		}
	}
}

// askHTTP starts callers of Leaf's API. They ask one address after the other, and the next one at once if nobody listens.
func (c *callers) askHTTP(addresses ...string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	c.t.Cleanup(client.CloseIdleConnections)
	var turn atomic.Int64
	for _, flakes := range []bool{false, true} {
		c.start("http", flakes, plainDeadline, func(ctx context.Context, tag string) (ranges []bus.Range, err error) {
			path := "/api/snowflake/get/any"
			if tag != "" {
				path = "/api/segment/get/" + tag
			}
			first := turn.Add(1)
			for i := range int64(len(addresses)) {
				at := addresses[(first+i)%int64(len(addresses))]
				r, _ := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s%s?count=%d", at, path, callersBatch), nil)
				r.Header.Set("Authorization", "Bearer "+c.token)
				var answer *http.Response
				if answer, err = client.Do(r); err != nil {
					continue
				}
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != http.StatusOK {
					return nil, errors.Join(err, fmt.Errorf("%d %s", answer.StatusCode, answer.Header.Get("Leaf-Error-Reason")))
				}
				return bus.ParseReply(body)
			}
			return nil, err
		})
	}
}

// start starts two callers of one kind, each of which calls take again and again.
func (c *callers) start(name string, flakes bool, deadline time.Duration, take func(context.Context, string) ([]bus.Range, error)) {
	k := &callerKind{name: name + " tag"}
	if flakes {
		k.name = name + " snowflake"
	}
	k.phases[0].reasons, k.phases[1].reasons = map[string]int{}, map[string]int{}
	c.kinds = append(c.kinds, k)
	for range 2 {
		c.wg.Go(func() {
			for answered := time.Now(); c.ctx.Err() == nil; {
				tag := ""
				if !flakes {
					// Of thirty tags the first one gets a seventh of the calls, and the last one every two thousandth.
					tag = c.tags[int(float64(len(c.tags))*rand.Float64()*rand.Float64())]
				}
				ctx, cancel := context.WithTimeout(c.ctx, deadline)
				began := time.Now()
				ranges, err := take(ctx, tag)
				cancel()
				if c.ctx.Err() != nil && err != nil {
					return // it was the end of the drill that ended the call
				}
				if err == nil {
					c.taken[tag].Add(ranges...)
				}
				k.count(c.fault.Load(), began, time.Since(answered), err)
				if err == nil {
					answered = time.Now()
				} else if tag != "" && deadline >= plainDeadline && c.unjust != nil && c.unjust(tag) { // a busy machine may take half a second
					k.mu.Lock()
					k.unjust++
					k.mu.Unlock()
				}
				time.Sleep(callersPause)
			}
		})
	}
}

// count counts a call that has ended, in the phase in which it did.
func (k *callerKind) count(fault *time.Time, began time.Time, gap time.Duration, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &k.phases[0]
	if fault != nil {
		p = &k.phases[1]
	}
	p.calls++
	p.gap = max(p.gap, gap)
	if err == nil {
		return
	}
	if fault != nil {
		p.last = max(p.last, began.Sub(*fault))
	}
	text := err.Error()
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		p.timedOut++
		text = "timed out"
	} else {
		p.refused++
	}
	if _, reason, ok := strings.Cut(text, `"reason":"`); ok {
		text, _, _ = strings.Cut(reason, `"`)
	}
	p.reasons[text[:min(len(text), 100)]]++
}

// begin marks the moment at which the fault begins.
func (c *callers) begin() {
	now := time.Now()
	c.fault.Store(&now)
}

// calm is what callers may notice of a fault. The zero value allows all failures.
type calm struct {
	none     bool          // no call of a plain caller fails
	noneHTTP bool          // nor one over HTTP
	within   time.Duration // no call fails that began so long after the fault
	longest  time.Duration // the longest time without an answer for a plain caller
	just     bool          // no call fails for a tag while a generator has enough IDs of it
}

// stop stops the callers, prints a line for each kind, and checks that no ID came twice and that the callers were as calm as promised.
func (c *callers) stop(want calm) {
	c.t.Helper()
	c.end()
	for tag, taken := range c.taken {
		if _, err := taken.Check(); err != nil {
			c.t.Errorf("%q: %v", tag, err)
		}
	}
	var lines strings.Builder
	for _, k := range c.kinds {
		before, after := k.phases[0], k.phases[1]
		failed := after.refused + after.timedOut
		fmt.Fprintf(&lines, "%-38s %-30s before %v | after %v", strings.TrimPrefix(c.t.Name(), "TestDrillCallers"), k.name, before, after)
		if failed > 0 {
			fmt.Fprintf(&lines, " last failure at %5.1fs %v", after.last.Seconds(), reasonsOf(after.reasons))
		}
		if c.unjust != nil {
			fmt.Fprintf(&lines, " | %d failed while a generator had enough", k.unjust)
		}
		lines.WriteString("\n")
		plain, overHTTP := strings.HasPrefix(k.name, "nats"), strings.HasPrefix(k.name, "http")
		if before.refused+before.timedOut > 0 {
			c.t.Errorf("%s: calls failed before the fault: %v %v", k.name, before, reasonsOf(before.reasons))
		}
		if failed > 0 && (plain && want.none || overHTTP && want.noneHTTP) {
			c.t.Errorf("%s: %d of %d calls failed: %v", k.name, failed, after.calls, reasonsOf(after.reasons))
		}
		if want.just && k.unjust > 0 {
			c.t.Errorf("%s: %d calls failed while a generator had enough: %v", k.name, k.unjust, reasonsOf(after.reasons))
		}
		if want.within > 0 && after.last > want.within && !overHTTP {
			c.t.Errorf("%s: a call failed that began %v after the fault, want at most %v: %v", k.name, after.last, want.within, reasonsOf(after.reasons))
		}
		if want.longest > 0 && after.gap > want.longest && plain {
			c.t.Errorf("%s: no answer for %v, want at most %v", k.name, after.gap, want.longest)
		}
	}
	c.t.Logf("\n%s", lines.String())
	if file := os.Getenv(callersEnv); file != "" {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		must(c.t, err)
		defer f.Close()
		_, err = f.WriteString(lines.String())
		must(c.t, err)
	}
}

func (p callerPhase) String() string {
	return fmt.Sprintf("%6d calls %5d refused %5d timed out gap %7.3fs", p.calls, p.refused, p.timedOut, p.gap.Seconds())
}

// reasonsOf lists why calls failed, the most frequent first.
func reasonsOf(reasons map[string]int) (list []string) {
	for _, text := range slices.SortedFunc(maps.Keys(reasons), func(x, y string) int { return reasons[y] - reasons[x] }) {
		list = append(list, fmt.Sprintf("%d× %s", reasons[text], text))
	}
	return list[:min(len(list), 4)]
}
