package bustest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/bustest"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// source takes IDs and fails the test when one comes again, or none comes.
type source struct {
	t    *testing.T
	g    *bustest.Generator
	seen map[int64]bool
}

func newSource(t *testing.T, g *bustest.Generator) *source {
	return &source{t, g, make(map[int64]bool)}
}

func (s *source) take(n int64) []bus.Range {
	s.t.Helper()
	ids, err := s.g.Client().Take(s.t.Context(), "order", n)
	s.check(ids, n, err)
	return ids
}

func (s *source) snowflakes(n int64) []bus.Range {
	s.t.Helper()
	ids, err := s.g.Client().Snowflakes(s.t.Context(), n)
	s.check(ids, n, err)
	return ids
}

func (s *source) check(ids []bus.Range, n int64, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range ids {
		for id := r.First; id <= r.Last; id++ {
			if s.seen[id] {
				s.t.Fatalf("%d came twice", id)
			}
			s.seen[id] = true
			n--
		}
	}
	if n != 0 {
		s.t.Fatalf("%v is %d IDs short", ids, n)
	}
}

// The tests that are not parallel come first: a goroutine that is left is theirs.

func TestClose(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	folders := func() int {
		entries, err := os.ReadDir(temp)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	g, err := bustest.Open("order")
	if err != nil {
		t.Fatal(err)
	}
	newSource(t, g).take(1)
	if folders() != 1 {
		t.Errorf("%d folders for one generator", folders())
	}
	for range 2 {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if folders() != 0 {
		t.Error("the folder is still there")
	}
	files, err := filepath.Glob("/proc/self/fd/*") // none where there is no /proc
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name, err := os.Readlink(f); err == nil && strings.HasPrefix(name, temp) {
			t.Errorf("%s is still open", name)
		}
	}
	if !g.Conn().IsClosed() {
		t.Error("the connection is open")
	}
	if _, err := nats.Connect(g.URL()); !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("connected after Close: %v", err)
	}
	goleak.VerifyNone(t)
	if err := g.Stop(); err != nil {
		t.Errorf("Stop after Close: %v", err)
	}
	if err := g.Restart(); err == nil {
		t.Error("restarted after Close")
	}
}

func TestBadTag(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, tag := range []string{"", "a b", "order:", "order:0", "order:many", "order:-5", "order:99999999999999", ":5"} {
		g, err := bustest.Open("good", tag)
		if err == nil {
			g.Close()
			t.Errorf("%q was taken", tag)
			continue
		}
		if !strings.Contains(err.Error(), `"`+tag+`"`) {
			t.Errorf("%q: the error does not name it: %v", tag, err)
		}
	}
	if entries, _ := os.ReadDir(temp); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
	goleak.VerifyNone(t)
}

func TestIDs(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order", "coupon:5000")
	s := newSource(t, g)
	if ids := s.take(5); len(ids) != 1 || ids[0] != (bus.Range{First: 1, Last: 5}) {
		t.Errorf("the first IDs are %v, want 1-5", ids)
	}
	s.snowflakes(5000)
	for tag, step := range map[string]int64{"order": 1000, "coupon": 5000} {
		if r, err := g.Client().Tag(t.Context(), tag); err != nil || r.Step != step || r.MaxID < 1 {
			t.Errorf("%s is %+v (%v), want step %d", tag, r, err, step)
		}
	}
	if _, err := g.Client().Take(t.Context(), "other", 1); !errors.Is(err, bus.UnknownTag) {
		t.Errorf("a tag that nobody made: %v", err)
	}
	own, err := natskit.Dial(g.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if ids, err := bus.NewClient(own).Take(t.Context(), "order", 1); err != nil || ids[0].First != 6 {
		t.Errorf("over a connection of its own: %v, %v", ids, err)
	}
}

// The very first request after the start is answered, whatever it asks for.
func TestReadyWhenOpen(t *testing.T) {
	t.Parallel()
	for range 10 {
		g := bustest.Start(t, "order", "coupon")
		for _, subject := range []string{"leaf.snowflake", "leaf.segment.coupon", "leaf.segment.order"} {
			msg, err := g.Conn().Request(subject, nil, testkit.Patience)
			if err != nil || msg.Header.Get("Nats-Service-Error") != "" {
				t.Fatalf("%s: %v, %+v", subject, err, msg)
			}
		}
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	s := newSource(t, g)
	var flakes []bus.Range
	for round := range 3 {
		s.take(1500)
		more := s.snowflakes(10_000)
		if round > 0 && more[0].First <= flakes[len(flakes)-1].Last {
			t.Errorf("snowflakes went back from %v to %v", flakes[len(flakes)-1], more[0])
		}
		flakes = more
		for range 2 {
			if err := g.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		for _, subject := range []string{"leaf.snowflake", "leaf.segment.order", "leaf.admin.tags.list"} {
			if _, err := g.Conn().Request(subject, nil, testkit.Patience); !errors.Is(err, nats.ErrNoResponders) {
				t.Errorf("%s after Stop: %v", subject, err)
			}
		}
		if err := g.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	workers, err := g.Client().Workers(t.Context(), bus.WorkersRequest{})
	if err != nil || len(workers.Workers) != 1 {
		t.Errorf("the restarts took other workers: %+v, %v", workers, err)
	}
}

// What callers are told when no generator is there.
func TestClientWithoutGenerator(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	if ids, err := g.Client().Take(ctx, "order", 1); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("Take: %v, %v", ids, err)
	}
	took := make(chan error, 1)
	go func() { // asks again until there is a generator
		_, err := g.Client(bus.Timeout(testkit.Patience)).Take(context.Background(), "order", 1)
		took <- err
	}()
	if err := g.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := <-took; err != nil {
		t.Errorf("Take across the restart: %v", err)
	}
}

func TestRestartWhileItRuns(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	s := newSource(t, g)
	s.take(10)
	g.Conn().Close() // a service may close what it was given
	if err := g.Restart(); err != nil {
		t.Fatal(err)
	}
	nc, err := natskit.Dial(g.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ids, err := bus.NewClient(nc).Take(t.Context(), "order", 10)
	s.check(ids, 10, err)
}

// A restart on a NATS that has lost its state must not begin at 1 again.
func TestRestartWithoutState(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	newSource(t, g).take(10)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(g.Conn())
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range []string{bus.BucketInstallation, bus.BucketTags} {
		if err := js.DeleteKeyValue(t.Context(), bucket); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Restart(); err == nil || !strings.Contains(err.Error(), "installation") {
		t.Errorf("restarted: %v", err)
	}
	if _, err := g.Conn().Request("leaf.segment.order", nil, testkit.Patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("there is a generator: %v", err)
	}
}

// A generator whose tags take long answers with errors before it has them, and
// that is no restart yet.
func TestRestartWaitsForTags(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(g.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(t.Context(), bus.BucketTags); err != nil {
		t.Fatal(err)
	}
	forgetTags(t, js)
	const squatter = "SQUATTER"
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: squatter, Subjects: []string{"$KV." + bus.BucketTags + ".>"}}); err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error, 1)
	go func() { restarted <- g.Restart() }()
	testkit.Eventually(t, "the generator answers", func() bool {
		_, err := g.Conn().Request("leaf.segment.order", []byte("no number"), testkit.Patience)
		return err == nil
	})
	if err := js.DeleteStream(t.Context(), squatter); err != nil {
		t.Fatal(err)
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	if _, err := g.Client().Tag(t.Context(), "order"); err != nil {
		t.Errorf("restarted without its tags: %v", err)
	}
	if ids, err := g.Client().Take(t.Context(), "order", 1); err != nil || ids[0].First != 1 {
		t.Errorf("after the restart: %v, %v", ids, err)
	}
}

// forgetTags makes the record of the installation say that there never was a tag.
func forgetTags(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), bus.BucketInstallation)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), "installation")
	if err != nil {
		t.Fatal(err)
	}
	record := strings.Replace(string(entry.Value()), `,"tags":true`, "", 1)
	if _, err := kv.PutString(t.Context(), "installation", record); err != nil {
		t.Fatal(err)
	}
}

func TestKitsAreApart(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for range 6 {
		g := bustest.Start(t, "order")
		all.Go(func() {
			c := g.Client()
			for i := range int64(100) {
				ids, err := c.Take(context.Background(), "order", 1)
				// A request that was sent again on a slow machine may have taken an ID each time.
				if err != nil || ids[0].First <= i || ids[0].First > i+1+c.Stats().Retries {
					t.Errorf("ID %d is %v, %v", i+1, ids, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestAtOnce(t *testing.T) {
	t.Parallel()
	g, err := bustest.Open("order")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	var callers, all sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if _, err := g.Client().Take(ctx, "order", 1); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			if err := errors.Join(g.Stop(), g.Restart()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	cancel()
	callers.Wait()
	for range 4 {
		all.Go(func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
