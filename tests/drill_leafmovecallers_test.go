//go:build drills

package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// way is how a caller takes IDs.
type way struct {
	name string
	take func(ctx context.Context, tag string) ([]bus.Range, error)
}

// leafError is what Leaf's API answers instead of an ID.
type leafError string

func (e leafError) Error() string { return string(e) }

// errBothEmpty is Leaf's answer while both segments of a tag are empty, also if the database is well.
const errBothEmpty = leafError("Result{id=-3, status=EXCEPTION}")

// errUnknownKey is Leaf's answer for a tag that it does not know.
const errUnknownKey = leafError("Result{id=-2, status=EXCEPTION}")

// askLeaf takes an ID over Leaf's API.
func askLeaf(ctx context.Context, address, tag string) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/segment/get/"+tag, nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK {
		var f leafFailure
		if err := json.Unmarshal(body, &f); err != nil {
			return 0, fmt.Errorf("%s: %s", answer.Status, body)
		}
		if reason := answer.Header.Get("Leaf-Error-Reason"); reason != "" {
			return 0, bus.Reason(reason)
		}
		return 0, leafError(f.Message)
	}
	return strconv.ParseInt(string(body), 10, 64)
}

// overLeaf takes IDs over Leaf's API from the addresses in turn, as a caller behind a load balancer does.
func overLeaf(name string, addresses ...string) *way {
	var calls atomic.Int64
	return &way{name, func(ctx context.Context, tag string) ([]bus.Range, error) {
		id, err := askLeaf(ctx, addresses[calls.Add(1)%int64(len(addresses))], tag)
		return []bus.Range{{First: id, Last: id}}, err
	}}
}

// overClient takes IDs over NATS.
func overClient(c *bus.Client) *way {
	return &way{"new over NATS", func(ctx context.Context, tag string) ([]bus.Range, error) { return c.Take(ctx, tag, 1+rand.Int64N(5)) }}
}

// tally is what callers got on one way.
type tally struct {
	answers, ids int64
	failed       map[string]int
	longest      time.Duration // without an answer, for one caller
}

// traffic is callers that take IDs one after the other. No ID of any way and any moment may come twice.
type traffic struct {
	t    *testing.T
	tags []string
	ways []atomic.Pointer[way] // of each caller

	answers  atomic.Int64
	checkers map[string]*allocatortest.Checker // by tag

	mu      sync.Mutex
	tallies map[string]*tally // by way
	failure error             // the first that was not expected
}

// startTraffic starts callers, which take IDs in the given way.
func startTraffic(t *testing.T, tags []string, callers int, first *way) *traffic {
	t.Helper()
	f := &traffic{t: t, tags: tags, ways: make([]atomic.Pointer[way], callers), checkers: make(map[string]*allocatortest.Checker), tallies: make(map[string]*tally)}
	for _, tag := range tags {
		f.checkers[tag] = new(allocatortest.Checker)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range f.ways {
		f.ways[i].Store(first)
		wg.Go(func() { f.call(ctx, &f.ways[i]) })
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return f
}

// lead makes the callers take IDs in these ways, in turn.
func (f *traffic) lead(ways ...*way) {
	for i := range f.ways {
		f.ways[i].Store(ways[i%len(ways)])
	}
}

// call is one caller, with a deadline of 500 ms for each call.
func (f *traffic) call(ctx context.Context, chosen *atomic.Pointer[way]) {
	answered := time.Now()
	for pause := time.NewTicker(2 * time.Millisecond); ctx.Err() == nil; <-pause.C {
		by, tag := chosen.Load(), f.tags[rand.IntN(len(f.tags))]
		attempt, cancel := context.WithTimeout(ctx, probeDeadline)
		ranges, err := by.take(attempt, tag)
		cancel()
		if ctx.Err() != nil {
			return
		}
		f.count(by.name, tag, ranges, err, time.Since(answered))
		if err == nil {
			answered = time.Now()
		}
	}
}

func (f *traffic) count(by, tag string, ranges []bus.Range, err error, waited time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	y := f.tallies[by]
	if y == nil {
		y = &tally{failed: make(map[string]int)}
		f.tallies[by] = y
	}
	y.longest = max(y.longest, waited)
	if err != nil {
		what := kindOf(err)
		if what == "" && f.failure == nil {
			f.failure = fmt.Errorf("%s, %s: %w", by, tag, err)
		}
		y.failed[what]++
		return
	}
	f.checkers[tag].Add(ranges...)
	y.answers++
	for _, r := range ranges {
		y.ids += r.Len()
	}
	f.answers.Add(1)
}

// kindOf names a failure that callers must expect; "": none may happen.
func kindOf(err error) string {
	switch {
	case errors.Is(err, errBothEmpty):
		return "-3"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		strings.Contains(err.Error(), "server closed idle connection"):
		return "connection"
	}
	return ""
}

// more waits for so many further answers.
func (f *traffic) more(answers int64) {
	f.t.Helper()
	until := f.answers.Load() + answers
	testkit.Eventually(f.t, "answers", func() bool { f.check(); return f.answers.Load() >= until })
}

func (f *traffic) check() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure != nil {
		f.t.Fatalf("a caller failed: %v", f.failure)
	}
}

// report fails the test if an ID came twice. It returns how many came since the last report, and describes them.
func (f *traffic) report() (ids int64, text string) {
	f.t.Helper()
	f.check()
	for tag, c := range f.checkers {
		if _, err := c.Check(); err != nil {
			f.t.Fatalf("%s: %v", tag, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for by, y := range f.tallies {
		ids += y.ids
		lines = append(lines, fmt.Sprintf("    %s: %d answers, failed %v, longest time without an answer %v", by, y.answers, y.failed, y.longest.Round(time.Millisecond)))
	}
	clear(f.tallies)
	slices.Sort(lines)
	return ids, strings.Join(lines, "\n")
}
