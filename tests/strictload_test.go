package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// Callers of a strict tag have these deadlines. The hasty ones measure the longest time without an answer.
const (
	strictDeadline = 5 * time.Second
	hastyDeadline  = 500 * time.Millisecond
)

// strictLoad is callers of all kinds that take IDs of one strict tag until they are stopped, and the history of their answers.
type strictLoad struct {
	t       *testing.T
	tag     string
	callers int // of NATS, all together
	history allocatortest.History
	answers atomic.Int64
	highest atomic.Int64
	longest atomic.Int64 // the longest time without an answer for one hasty caller, in nanoseconds; round measures its own
	worst   atomic.Int64 // the longest of all rounds

	mu    sync.Mutex
	kinds map[string]*kindOfCaller
	wrong error // the first answer or refusal that must not come

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// kindOfCaller is what the callers of one kind got.
type kindOfCaller struct{ answers, ids, failed atomic.Int64 }

// never are refusals that a tag that is there never gives to a valid request.
var never = []bus.Reason{
	bus.BadRequest, bus.BadTag, bus.UnknownTag, bus.Conflict, bus.BatchTooLarge, bus.Internal, bus.StoreRegressed, bus.Exhausted,
}

// startStrict starts callers: so many on a connection to each of the NATS URLs, and some at each of the addresses of generators.
func startStrict(t *testing.T, tag string, callers int, urls, https []string) *strictLoad {
	t.Helper()
	l := &strictLoad{t: t, tag: tag, kinds: make(map[string]*kindOfCaller)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	t.Cleanup(l.end)
	seed := allocatortest.Seed(t)
	for _, url := range urls {
		nc := connect(t, url)
		c := bus.NewClient(nc)
		for i := range callers {
			l.callers++
			sizes := rand.New(rand.NewPCG(seed.Uint64(), seed.Uint64()))
			switch i % 10 {
			case 0, 1:
				l.take(c, "Take 1", func() int64 { return 1 })
			case 2:
				l.take(c, "Take batch", func() int64 { return 1 + sizes.Int64N(2000) })
			case 3:
				l.raw(nc, "NATS text", func() string { return []string{"", "1", "7"}[sizes.IntN(3)] }, parseText)
			case 4:
				l.raw(nc, "NATS JSON", func() string { return fmt.Sprintf(`{"count":%d}`, 1+sizes.IntN(50)) }, parseJSON)
			default:
				l.repeat("Next", strictDeadline, func(ctx context.Context) ([]bus.Range, error) {
					id, err := c.Next(ctx, l.tag)
					return []bus.Range{{First: id, Last: id}}, err
				})
			}
		}
	}
	for i := range 2 {
		url := urls[i%len(urls)]
		l.bulk(client(t, url))
		// A hasty caller notices soon that its connection hangs, and goes to another server if there is one.
		l.hasty(connect(t, url, nats.PingInterval(hastyDeadline/2), nats.MaxPingsOutstanding(2), nats.Timeout(hastyDeadline)))
	}
	l.command(urls[0])
	for _, address := range https {
		l.overHTTP(address)
		l.overHTTP(address)
	}
	return l
}

// end stops the callers.
func (l *strictLoad) end() {
	l.cancel()
	l.wg.Wait()
}

// stop stops the callers, checks the history, and prints what came. Each kind must have got IDs.
func (l *strictLoad) stop() {
	l.t.Helper()
	l.end()
	l.check()
	for _, name := range slices.Sorted(maps.Keys(l.kinds)) {
		k := l.kinds[name]
		l.t.Logf("%-10s %8d answers, %9d IDs, %5d calls failed", name, k.answers.Load(), k.ids.Load(), k.failed.Load())
		if k.answers.Load() == 0 {
			l.t.Errorf("%s: no answer ever came", name)
		}
	}
	raise(&l.worst, l.longest.Load())
	l.t.Logf("%d callers of NATS, %d answers with %d IDs in order, none twice; longest time without an answer for a caller with a deadline of %v: %v",
		l.callers, l.answers.Load(), l.history.IDs(), hastyDeadline, time.Duration(l.worst.Load()).Round(time.Millisecond))
}

// check fails the test at once if an answer was wrong, or IDs were out of order.
func (l *strictLoad) check() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong != nil {
		l.t.Fatal(l.wrong)
	}
	if _, err := l.history.Check(); err != nil {
		l.t.Fatal(err)
	}
}

// more waits for so many further answers.
func (l *strictLoad) more(answers int64) {
	l.t.Helper()
	until := l.answers.Load() + answers
	testkit.Eventually(l.t, fmt.Sprint(answers, " answers"), func() bool { return l.answers.Load() >= until })
}

// all waits until each kind of caller has got a further answer.
func (l *strictLoad) all() {
	l.t.Helper()
	before := make(map[string]int64)
	l.mu.Lock()
	kinds := maps.Clone(l.kinds)
	l.mu.Unlock()
	for name, k := range kinds {
		before[name] = k.answers.Load()
	}
	for name, k := range kinds {
		testkit.Eventually(l.t, "an answer to "+name, func() bool { return k.answers.Load() > before[name] })
	}
}

// raiseMaxID moves max_id far ahead, as an operator does. That is a request, too: one that takes the ID below max_id.
func (l *strictLoad) raiseMaxID(url string) {
	l.t.Helper()
	testkit.Eventually(l.t, "a new max_id", func() bool {
		to, call := l.highest.Load()+1_000_000_000, time.Now()
		r := leaf(l.t, "tag", "set", l.tag, "--max-id", strconv.FormatInt(to, 10), "-s", url)
		if r.status != 0 {
			if !strings.Contains(r.stderr, "503 draining") { // a generator that has just stood still asks to send it again
				l.t.Errorf("an operator cannot move max_id: %s", r.stderr)
			}
			return false
		}
		l.history.Add(call, time.Now(), bus.Range{First: to - 1, Last: to - 1})
		raise(&l.highest, to)
		return true
	})
}

func (l *strictLoad) kind(name string) *kindOfCaller {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds[name] == nil {
		l.kinds[name] = &kindOfCaller{}
	}
	return l.kinds[name]
}

// fail keeps the first answer or refusal that must not come.
func (l *strictLoad) fail(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong == nil {
		l.wrong = fmt.Errorf("%s: %w", name, err)
	}
}

// record takes in an answer.
func (l *strictLoad) record(k *kindOfCaller, call time.Time, ranges ...bus.Range) {
	l.history.Add(call, time.Now(), ranges...)
	for _, r := range ranges {
		k.ids.Add(r.Len())
		raise(&l.highest, r.Last)
	}
	k.answers.Add(1)
	l.answers.Add(1)
}

// refused takes in that a call failed.
func (l *strictLoad) refused(name string, k *kindOfCaller, err error) {
	if l.ctx.Err() != nil {
		return
	}
	k.failed.Add(1)
	for _, reason := range never {
		if errors.Is(err, reason) {
			l.fail(name, err)
		}
	}
	select { // leave the others some of the machine
	case <-time.After(5 * time.Millisecond):
	case <-l.ctx.Done():
	}
}

// repeat is one caller that makes one request after the other until the callers are stopped, each with a deadline.
func (l *strictLoad) repeat(name string, deadline time.Duration, take func(ctx context.Context) ([]bus.Range, error)) {
	k := l.kind(name)
	l.wg.Go(func() {
		for l.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(l.ctx, deadline)
			call := time.Now()
			if ranges, err := take(ctx); err == nil {
				l.record(k, call, ranges...)
			} else {
				l.refused(name, k, err)
			}
			cancel()
		}
	})
}

func (l *strictLoad) take(c *bus.Client, name string, size func() int64) {
	l.repeat(name, strictDeadline, func(ctx context.Context) ([]bus.Range, error) { return c.Take(ctx, l.tag, size()) })
}

// request asks with nothing but NATS. The answer must say that the tag is strict.
func (l *strictLoad) request(ctx context.Context, nc *nats.Conn, body string, parse func([]byte) ([]bus.Range, error)) ([]bus.Range, error) {
	msg, err := nc.RequestWithContext(ctx, bus.SubjectSegment+"."+l.tag, []byte(body))
	if err == nil {
		err = bus.ReplyError(msg)
	}
	if err != nil {
		return nil, err
	}
	if order := msg.Header.Get(bus.HeaderOrder); order != bus.OrderStrict {
		l.fail("NATS", fmt.Errorf("the header %s is %q", bus.HeaderOrder, order))
	}
	return parse(msg.Data)
}

func (l *strictLoad) raw(nc *nats.Conn, name string, body func() string, parse func([]byte) ([]bus.Range, error)) {
	l.repeat(name, strictDeadline, func(ctx context.Context) ([]bus.Range, error) { return l.request(ctx, nc, body(), parse) })
}

func parseText(body []byte) ([]bus.Range, error) { return bus.ParseReply(body) }

func parseJSON(body []byte) (ranges []bus.Range, err error) {
	var reply struct {
		Ranges []struct{ First, Last bus.ID }
	}
	err = json.Unmarshal(body, &reply)
	for _, r := range reply.Ranges {
		ranges = append(ranges, bus.Range{First: int64(r.First), Last: int64(r.Last)})
	}
	return ranges, err
}

// hasty is a caller that waits for an answer no longer than hastyDeadline.
func (l *strictLoad) hasty(nc *nats.Conn) {
	answered := time.Now()
	l.repeat("hasty", hastyDeadline, func(ctx context.Context) ([]bus.Range, error) {
		ranges, err := l.request(ctx, nc, "", parseText)
		if err == nil || l.ctx.Err() != nil {
			raise(&l.longest, int64(time.Since(answered)))
			answered = time.Now()
		}
		return ranges, err
	})
}

// bulk is a loop over many IDs, whose requests go one after the other: each is sent after the answer before it had arrived.
func (l *strictLoad) bulk(c *bus.Client) {
	k := l.kind("bulk")
	l.wg.Go(func() {
		for l.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(l.ctx, strictDeadline)
			call, arrived := time.Now(), time.Now() // the last but one
			for r, err := range c.Ranges(ctx, l.tag, 900, bus.Batch(300), bus.Parallel(1)) {
				if err != nil {
					l.refused("bulk", k, err)
					break
				}
				l.record(k, call, r)
				call, arrived = arrived, time.Now()
			}
			cancel()
		}
	})
}

// overHTTP is a caller of Leaf's API.
func (l *strictLoad) overHTTP(address string) {
	l.repeat("HTTP", strictDeadline, func(ctx context.Context) ([]bus.Range, error) {
		r, err := http.NewRequestWithContext(ctx, "GET", address+"/api/segment/get/"+l.tag+"?count=5", nil)
		if err != nil {
			return nil, err
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != 200 {
			return nil, errors.Join(err, errors.New(string(body)))
		}
		if order := answer.Header.Get(bus.HeaderOrder); order != bus.OrderStrict {
			l.fail("HTTP", fmt.Errorf("the header %s is %q", bus.HeaderOrder, order))
		}
		return bus.ParseReply(body)
	})
}

// command runs leaf get again and again, each time with one request. One that fails wrote nothing.
func (l *strictLoad) command(url string) {
	dir := l.t.TempDir()
	l.repeat("leaf get", patience, func(ctx context.Context) ([]bus.Range, error) {
		// Not start: a command that fails is expected here, and there are many.
		cmd := command(l.t, dir, nil, []string{"get", l.tag, "-n", "100", "--ranges", "-s", url})
		out, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && strings.Contains(string(exit.Stderr), "DATA RACE") {
			l.fail("leaf get", errors.New(string(exit.Stderr)))
		}
		if err != nil {
			return nil, err
		}
		return bus.ParseReply([]byte(strings.TrimSuffix(string(out), "\n")))
	})
}
