// Package callers has those who request IDs in tests: plain NATS requests, the Go client in all its ways, and
// HTTP. It records each call with the times at which it was sent and answered. One checker then finds IDs that
// came twice, answers of strict tags that are out of order, IDs below a floor, and the longest time without an
// answer.
package callers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// Snowflakes is the name of the kind of IDs that belongs to no tag.
const Snowflakes = ""

// Config is what callers ask for. The zero value asks for one snowflake after the other.
type Config struct {
	Tags     []string      // each call asks for one of them; none: [Snowflakes]
	Strict   []string      // those of Tags that are strict: their answers must be in order
	Batch    int64         // a call asks for 1 to Batch IDs; 0: 1
	Deadline time.Duration // of each call; 0: testkit.Patience
	Once     time.Duration // the deadline of callers that do not try again; 0: Deadline
	Token    string        // of callers over HTTP
	Pause    time.Duration // of a caller between two calls; 0: 1 ms, which leaves the others some of the machine
	Options  []nats.Option // of each connection
	Seed     uint64        // of the random tags and sizes; 0: allocatortest.Seed
	// MayFail reports whether a failed call is expected; nil: none is. It runs in many goroutines.
	MayFail func(Call) bool
	// Record gets each call, and each range of a bulk, instead of these callers: they keep none, and check only
	// MayFail. It runs in many goroutines, for each call before [Callers.Answered] counts it.
	Record func(Call)
}

// AnyFailure is a MayFail for faults that callers may notice. It allows no refusal that a valid request for a tag
// that exists never gets.
func AnyFailure(c Call) bool {
	for _, never := range []bus.Reason{
		bus.BadRequest, bus.BadTag, bus.UnknownTag, bus.BatchTooLarge, bus.Internal, bus.Exhausted,
	} {
		if errors.Is(c.Err, never) {
			return false
		}
	}
	return true
}

// Refused is a MayFail for these reasons, and no other failure.
func Refused(reasons ...bus.Reason) func(Call) bool {
	return func(c Call) bool {
		return slices.ContainsFunc(reasons, func(r bus.Reason) bool { return errors.Is(c.Err, r) })
	}
}

// Call is one call of one caller. If Err is nil, Ranges are its IDs.
type Call struct {
	Kind, Tag   string
	Ahead       bool // its IDs were fetched before it was called
	Once        bool // its caller does not try again: plain NATS, HTTP
	Sent, Ended time.Time
	Ranges      []bus.Range
	Err         error
}

// Callers call until they are stopped. All methods but those that add callers are safe for concurrent use.
type Callers struct {
	tb     testing.TB
	cfg    Config
	seeds  *rand.Rand
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	answered atomic.Int64

	mu     sync.Mutex
	calls  []Call
	kinds  map[string]int64 // answered calls of each kind
	floors []floor
	fault  time.Time // when a fault began; zero: none did
	wrong  error     // the first failure that was not expected
}

// floor says that no ID below first may come for a request sent after at.
type floor struct {
	tag   string
	first int64
	at    time.Time
}

// New returns callers that do nothing yet. Add some: c.Raw(url).Take(url).HTTP(address). They end with the test.
func New(tb testing.TB, cfg Config) *Callers {
	tb.Helper()
	if len(cfg.Tags) == 0 {
		cfg.Tags = []string{Snowflakes}
	}
	cfg.Deadline, cfg.Pause = cmp.Or(cfg.Deadline, testkit.Patience), cmp.Or(cfg.Pause, time.Millisecond)
	seeds := rand.New(rand.NewPCG(cfg.Seed, cfg.Seed))
	if cfg.Seed == 0 {
		seeds = allocatortest.Seed(tb)
	}
	c := &Callers{tb: tb, cfg: cfg, seeds: seeds, kinds: make(map[string]int64)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	tb.Cleanup(c.end)
	return c
}

func (c *Callers) end() {
	c.cancel()
	c.wg.Wait()
}

// take asks once for n IDs of a tag. It returns neither ranges nor an error if it has recorded its calls itself.
type take func(ctx context.Context, tag string, n int64) ([]bus.Range, error)

// add starts a caller.
func (c *Callers) add(kind string, ahead bool, take take) *Callers {
	c.mu.Lock()
	c.kinds[kind] += 0
	c.mu.Unlock()
	random := rand.New(rand.NewPCG(c.seeds.Uint64(), c.seeds.Uint64()))
	once, deadline := slices.Contains([]string{"raw", "raw JSON", "HTTP"}, kind), c.cfg.Deadline
	if once {
		deadline = cmp.Or(c.cfg.Once, deadline)
	}
	c.wg.Go(func() {
		for c.ctx.Err() == nil {
			call := Call{
				Kind: kind, Ahead: ahead, Once: once, Tag: c.cfg.Tags[random.IntN(len(c.cfg.Tags))], Sent: time.Now(),
			}
			ctx, cancel := context.WithTimeout(c.ctx, deadline)
			call.Ranges, call.Err = take(ctx, call.Tag, c.size(random))
			cancel()
			call.Ended = time.Now()
			if call.Err != nil && c.ctx.Err() != nil {
				return // the end of the test ended the call
			}
			if call.Err != nil || len(call.Ranges) > 0 { // a bulk has recorded its ranges
				c.record(call)
			}
			select {
			case <-time.After(c.cfg.Pause):
			case <-c.ctx.Done():
			}
		}
	})
	return c
}

// size is mostly small, sometimes anything up to the largest batch.
func (c *Callers) size(random *rand.Rand) int64 {
	switch most := c.cfg.Batch; {
	case most <= 1 || random.IntN(4) == 0:
		return 1
	case random.IntN(8) == 0:
		return 1 + random.Int64N(most)
	default:
		return 1 + random.Int64N(max(1, most/64))
	}
}

func (c *Callers) record(call Call) {
	if c.cfg.Record != nil {
		c.cfg.Record(call)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.Record == nil {
		c.calls = append(c.calls, call)
	}
	if call.Err == nil {
		c.kinds[call.Kind]++
		c.answered.Add(1)
	} else if c.wrong == nil && (c.cfg.MayFail == nil || !c.cfg.MayFail(call)) {
		c.wrong = fmt.Errorf("%s: a call for %q failed: %w", call.Kind, call.Tag, call.Err)
	}
}

// Answered is how many calls got IDs.
func (c *Callers) Answered() int64 { return c.answered.Load() }

// More waits until so many further calls got IDs. It fails the test if a call failed that may not.
func (c *Callers) More(calls int64) {
	c.tb.Helper()
	until := c.answered.Load() + calls
	testkit.Eventually(c.tb, fmt.Sprint(calls, " answers"), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.wrong != nil {
			c.tb.Fatal(c.wrong)
		}
		return c.answered.Load() >= until
	})
}

// MoreOfEach waits until each kind of caller got IDs once more.
func (c *Callers) MoreOfEach() {
	c.tb.Helper()
	c.mu.Lock()
	before := maps.Clone(c.kinds)
	c.mu.Unlock()
	for kind, n := range before {
		testkit.Eventually(c.tb, "an answer to "+kind, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.kinds[kind] > n
		})
	}
}

// Fault marks the moment at which a fault begins. [Callers.Stop] reports what callers met since.
func (c *Callers) Fault() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = time.Now()
}

// Floor demands that no ID of the tag below first comes for a request that is sent from now on.
func (c *Callers) Floor(tag string, first int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floors = append(c.floors, floor{tag, first, time.Now()})
}

// Ranges returns all IDs of a tag that came, joined.
func (c *Callers) Ranges(tag string) []bus.Range {
	c.tb.Helper()
	taken, err := c.taken(tag)
	if err != nil {
		c.tb.Fatalf("%q: %v", tag, err)
	}
	return taken.Ranges()
}

func (c *Callers) taken(tag string) (*allocatortest.Checker, error) {
	taken := new(allocatortest.Checker)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if call.Tag == tag {
			taken.Add(call.Ranges...)
		}
	}
	_, err := taken.Check()
	return taken, err
}

// Unique returns an error if an ID of the tag came twice, to whichever of these callers.
func Unique(tag string, sets ...*Callers) error {
	var all allocatortest.Checker
	for _, c := range sets {
		taken, err := c.taken(tag)
		if err != nil {
			return err
		}
		all.Add(taken.Ranges()...)
	}
	_, err := all.Check()
	return err
}

// Highest is the highest ID of a tag that came; 0: none did.
func (c *Callers) Highest(tag string) (id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		for _, r := range call.Ranges {
			if call.Tag == tag {
				id = max(id, r.Last)
			}
		}
	}
	return id
}

// Check fails the test at once if what came so far is wrong.
func (c *Callers) Check() {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := errors.Join(c.wrong, check(c.calls, c.cfg.Strict, c.floors)); err != nil {
		c.tb.Fatal(err)
	}
}

// Stop ends the callers, checks all that came, logs a line for each kind of caller, and returns what they met, by
// kind. Each kind must have got IDs.
func (c *Callers) Stop() map[string]Met {
	c.tb.Helper()
	c.end()
	c.Check()
	met := Meet(c.calls, c.fault, time.Time{})
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		if c.cfg.Record == nil {
			c.tb.Logf("%-12s of %q: %v", kind, c.cfg.Tags, met[kind])
		}
		if c.kinds[kind] == 0 {
			c.tb.Errorf("%s: no ID ever came", kind)
		}
	}
	return met
}

// check finds the first thing that is wrong with the IDs of calls.
func check(calls []Call, strict []string, floors []floor) error {
	taken, order := make(map[string]*allocatortest.Checker), make(map[string]*allocatortest.History)
	for _, call := range calls {
		if call.Err != nil && len(call.Ranges) == 0 {
			continue
		}
		if taken[call.Tag] == nil {
			taken[call.Tag], order[call.Tag] = new(allocatortest.Checker), new(allocatortest.History)
		}
		taken[call.Tag].Add(call.Ranges...)
		if slices.Contains(strict, call.Tag) {
			order[call.Tag].Add(call.Sent, call.Ended, call.Ranges...)
		}
		for _, f := range floors {
			for _, r := range call.Ranges {
				if call.Tag == f.tag && !call.Ahead && call.Sent.After(f.at) && r.First < f.first {
					return fmt.Errorf("%s: %v of %q came below %d, for a request sent %v after that was its floor",
						call.Kind, r, call.Tag, f.first, call.Sent.Sub(f.at))
				}
			}
		}
	}
	for tag := range taken {
		if _, err := taken[tag].Check(); err != nil {
			return fmt.Errorf("%q: %w", tag, err)
		}
		if _, err := order[tag].Check(); err != nil {
			return fmt.Errorf("strict tag %q: %w", tag, err)
		}
	}
	return nil
}
