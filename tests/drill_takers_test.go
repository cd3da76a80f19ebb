//go:build drills

package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
)

// takers are callers of all kinds, each of which takes IDs until it is stopped. Whatever ends a call, they go on.
type takers struct {
	t   *testing.T
	url string
	// IDs of the tag order, of the tag coupon, and snowflakes. Each load has callers of its own with a deadline of 500 ms.
	order, coupon, flakes *load
	http                  atomic.Pointer[[]string] // addresses of generators

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	kinds  map[string]*kindOfTaker
}

// kindOfTaker is what callers of one kind did.
type kindOfTaker struct{ ids, answers, failed atomic.Int64 }

// startTakers starts callers of all kinds, some of each.
func startTakers(t *testing.T, url string) *takers {
	t.Helper()
	hastily := func(tag string, callers int, each func(bus.Range)) *load {
		return startLoad(t, loadConfig{
			tag: tag, callers: callers, maxBatch: 500, patience: probeDeadline, mayGiveUp: true, expected: append(slices.Clone(anyRefusal), bus.NoWorkerID, bus.ClockBackwards), each: each,
		}, url)
	}
	s := &takers{t: t, url: url, kinds: make(map[string]*kindOfTaker), order: hastily("order", 2, nil), flakes: hastily("", 1, nil)}
	s.coupon = hastily("coupon", 1, func(r bus.Range) { s.order.taken.Add("coupon", r) })
	s.http.Store(&[]string{})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	t.Cleanup(s.end)
	for _, l := range []*load{s.order, s.coupon, s.flakes} {
		s.clients(l)
		s.raw(l)
		s.overHTTP(l)
		s.commands(l)
	}
	return s
}

// end stops the callers.
func (s *takers) end() {
	s.cancel()
	s.wg.Wait()
}

// stop stops the callers, prints what each kind did, and returns what was taken. Each kind must have got IDs.
func (s *takers) stop() audit.Options {
	s.t.Helper()
	s.end()
	for _, l := range []*load{s.order, s.coupon, s.flakes} {
		l.stop()
		_, text := l.unanswered()
		s.t.Logf("Take %s: %s", l.cfg.tag, text)
	}
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		k := s.kinds[name]
		s.t.Logf("%-22s %9d IDs in %6d answers, %4d calls failed", name, k.ids.Load(), k.answers.Load(), k.failed.Load())
		if k.ids.Load() == 0 {
			s.t.Errorf("%s: no ID ever came", name)
		}
	}
	return audit.Options{Taken: &s.order.taken, TakenSnowflakes: &s.flakes.flakes}
}

// files writes what was taken to files, and returns the arguments with which leaf audit reads them.
func (s *takers) files() []string {
	s.t.Helper()
	var tags, flakes strings.Builder
	for _, l := range []*load{s.order, s.coupon} {
		for _, r := range l.checker.Ranges() {
			fmt.Fprintf(&tags, "%s %v\n", l.cfg.tag, r)
		}
	}
	for _, r := range s.flakes.checker.Ranges() {
		fmt.Fprintf(&flakes, "%v\n", r)
	}
	dir := s.t.TempDir()
	writeFile(s.t, filepath.Join(dir, "tags"), tags.String())
	writeFile(s.t, filepath.Join(dir, "snowflakes"), flakes.String())
	return []string{"--taken", filepath.Join(dir, "tags"), "--taken-snowflakes", filepath.Join(dir, "snowflakes")}
}

// repeat calls take again and again until the callers are stopped, each time with a deadline. What comes with an error was taken, too.
func (s *takers) repeat(name string, l *load, deadline time.Duration, take func(ctx context.Context) ([]bus.Range, error)) {
	s.mu.Lock()
	if s.kinds[name] == nil {
		s.kinds[name] = &kindOfTaker{}
	}
	k := s.kinds[name]
	s.mu.Unlock()
	s.wg.Go(func() {
		for s.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(s.ctx, deadline)
			ranges, err := take(ctx)
			cancel()
			if len(ranges) > 0 {
				l.record(ranges, 0)
				k.answers.Add(1)
				for _, r := range ranges {
					k.ids.Add(r.Len())
				}
			}
			if err != nil && s.ctx.Err() == nil {
				k.failed.Add(1)
			}
			select { // leave the others some of the machine
			case <-time.After(2 * time.Millisecond):
			case <-s.ctx.Done():
			}
		}
	})
}

// clients are those of the Go client.
func (s *takers) clients(l *load) {
	s.t.Helper()
	c, tag := client(s.t, s.url), l.cfg.tag
	pool, next := (*bus.Pool)(nil), func(ctx context.Context) (int64, error) { return c.Next(ctx, tag) }
	bulk, err := func(ctx context.Context) rangesSeq {
		return c.Ranges(ctx, tag, 30_000, bus.Batch(5000), bus.Parallel(3))
	}, error(nil)
	if pool, err = c.Pool(tag); tag == "" {
		pool, err = c.SnowflakePool()
		next = c.NextSnowflake
		bulk = func(ctx context.Context) rangesSeq {
			return c.SnowflakeRanges(ctx, 30_000, bus.Batch(5000), bus.Parallel(3))
		}
	}
	must(s.t, err)
	s.t.Cleanup(func() { pool.Close() })
	// singles takes some IDs, one after the other.
	singles := func(next func(context.Context) (int64, error)) func(context.Context) ([]bus.Range, error) {
		return func(ctx context.Context) (ranges []bus.Range, err error) {
			for id := int64(0); len(ranges) < 10 && err == nil; {
				if id, err = next(ctx); err == nil {
					ranges = append(ranges, bus.Range{First: id, Last: id})
				}
			}
			return ranges, err
		}
	}
	s.repeat("Next", l, probeDeadline, singles(next))
	s.repeat("Next", l, probeDeadline, singles(next)) // callers at the same time share a request
	s.repeat("Pool", l, probeDeadline, singles(pool.Next))
	s.repeat("Ranges", l, 4*probeDeadline, func(ctx context.Context) (ranges []bus.Range, err error) {
		for r, err := range bulk(ctx) {
			if err != nil {
				return ranges, err
			}
			ranges = append(ranges, r)
		}
		return ranges, nil
	})
}

type rangesSeq = func(func(bus.Range, error) bool)

// raw are those that know nothing but NATS.
func (s *takers) raw(l *load) {
	s.t.Helper()
	nc, subject := connect(s.t, s.url), bus.SubjectSnowflake
	if l.cfg.tag != "" {
		subject = bus.SubjectSegment + "." + l.cfg.tag
	}
	for name, parse := range map[string]func([]byte) ([]bus.Range, error){
		"NATS text 300": bus.ParseReply,
		`NATS JSON {"count":300}`: func(body []byte) (ranges []bus.Range, err error) {
			var reply struct {
				Ranges []struct{ First, Last bus.ID }
			}
			err = json.Unmarshal(body, &reply)
			for _, r := range reply.Ranges {
				ranges = append(ranges, bus.Range{First: int64(r.First), Last: int64(r.Last)})
			}
			return ranges, err
		},
	} {
		body := []byte(name[strings.LastIndexByte(name, ' ')+1:])
		s.repeat(name, l, probeDeadline, func(ctx context.Context) ([]bus.Range, error) {
			msg, err := nc.RequestWithContext(ctx, subject, body)
			if err != nil {
				return nil, err
			}
			if len(msg.Header) > 0 {
				return nil, errors.New(string(msg.Data))
			}
			return parse(msg.Data)
		})
	}
}

// overHTTP are those of Leaf's API. They ask one generator after the other.
func (s *takers) overHTTP(l *load) {
	path := "/api/segment/get/" + l.cfg.tag
	if l.cfg.tag == "" {
		path = "/api/snowflake/get/any"
	}
	var n atomic.Int64
	s.repeat("HTTP", l, probeDeadline, func(ctx context.Context) ([]bus.Range, error) {
		all := *s.http.Load()
		if len(all) == 0 {
			return nil, nil // none has said where it is
		}
		r, err := http.NewRequestWithContext(ctx, "GET", all[n.Add(1)%int64(len(all))]+path+"?count=100", nil)
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
		return bus.ParseReply(body)
	})
}

// commands are processes of leaf that write ranges to a file.
func (s *takers) commands(l *load) {
	s.t.Helper()
	get, bench := []string{"get", l.cfg.tag}, []string{"bench", l.cfg.tag}
	if l.cfg.tag == "" {
		get, bench = []string{"snowflake"}, []string{"bench"}
	}
	s.command(l, append(get, "-n", "20000", "--ranges", "--output"))
	s.command(l, append(bench, "-n", "20", "--callers", "4", "--duration", "300ms", "--taken"))
}

// command runs a command again and again. The last argument is the file with the ranges that it took.
func (s *takers) command(l *load, args []string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "ids")
	args = append(args, file, "-s", s.url)
	dir := s.t.TempDir()
	// What a process took that failed is in the file.
	s.repeat("leaf "+args[0], l, patience, func(context.Context) ([]bus.Range, error) {
		must(s.t, os.RemoveAll(file))
		// Not start: a command that fails is expected here, and there are many.
		cmd := command(s.t, dir, nil, args)
		out, failed := cmd.CombinedOutput()
		if strings.Contains(string(out), "DATA RACE") || strings.Contains(string(out), "panic: ") {
			s.t.Errorf("%v: %s", cmd.Args, out)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, errors.Join(failed, err)
		}
		ranges, err := parseLines(text)
		if err != nil {
			s.t.Errorf("%v wrote what is no range: %v", cmd.Args, err)
		}
		return ranges, failed
	})
}

// parseLines reads ranges, one a line.
func parseLines(text []byte) (ranges []bus.Range, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	if text[len(text)-1] != '\n' {
		return nil, fmt.Errorf("the last line has no end: %q", text[max(0, len(text)-60):])
	}
	return bus.ParseReply(text[:len(text)-1])
}
