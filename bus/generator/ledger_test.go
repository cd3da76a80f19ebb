package generator_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// ledger is what a generator knows of its ledger, as a test sets it.
type ledger struct {
	away     atomic.Pointer[error]
	mayBegin chan func(context.Context) error // what Keep was given
	lost     chan string                      // causes for which Keep calls replaced
}

func newLedger() *ledger {
	return &ledger{mayBegin: make(chan func(context.Context) error, 1), lost: make(chan string)}
}

func (l *ledger) Err() error {
	if err := l.away.Load(); err != nil {
		return *err
	}
	return nil
}

func (l *ledger) OnShadow(func(tag string, shadowed bool)) {}

func (l *ledger) Keep(ctx context.Context, mayBegin func(context.Context) error, replaced func(string)) {
	l.mayBegin <- mayBegin
	for {
		select {
		case cause := <-l.lost:
			replaced(cause)
		case <-ctx.Done():
			return
		}
	}
}

// withLedger makes a generator claim its ranges in the bucket LEAF_LEDGER, as one with a database does.
func withLedger(t *testing.T) func(*generator.Config) {
	return func(c *generator.Config) {
		bucket, err := kvstore.OpenLedger(t.Context(), kvstore.Config{Conn: c.Conn, JS: c.JS, Log: testkit.Quiet})
		if err != nil {
			t.Fatal(err)
		}
		c.Marks, c.Records = allocator.NewMarks(), bucketRecords{bucket, c.Store}
		c.Store, c.StoreKind = allocator.WithLedger(c.Store, bucket, c.Marks, ""), "mysql"
		c.Ledger = newLedger()
	}
}

// bucketRecords are those of the bucket and a database.
type bucketRecords struct {
	bucket   *kvstore.LedgerBucket
	database allocator.Store
}

func (r bucketRecords) Claimed(ctx context.Context, tag string) (allocator.Entry, error) {
	return r.bucket.Read(ctx, tag)
}

func (r bucketRecords) Stored(ctx context.Context, tag string, _ int64) (allocator.Tag, error) {
	return r.database.Get(ctx, tag)
}

// While a generator of an older version runs, which claims nothing, nothing is reserved from a database,
// and nothing fills the ledger. Memory goes on.
func TestOlderPeerClaimsNothing(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	l := newLedger()
	own := generator.Identity{Installation: "own", Created: time.Unix(1_700_000_000, 0)}
	g := start(t, s, "new", memory(t, "order", "full"), func(c *generator.Config) {
		c.MaxWait = 200 * time.Millisecond // less than the older one counts as present
		c.Ledger = l
		c.Join = func(context.Context, func(context.Context) error) (generator.Identity, error) { return own, nil }
	})
	mayBegin := <-l.mayBegin
	if _, err := g.Take(t.Context(), "full", 1); err != nil {
		t.Fatal(err)
	}
	beat := func(older string) {
		for _, b := range []string{
			`{"node":"other","id":"1","installation":"another","created":"2030-01-01T00:00:00Z"}`,
			`{"node":"starting","id":"2"}`,
			`{"node":"claims","id":"3","installation":"own","claims":true}`,
			older,
		} {
			if err := nc.Publish("leaf.internal.presence", []byte(b)); err != nil {
				t.Fatal(err)
			}
		}
	}
	take := func() error {
		_, err := g.Take(t.Context(), "order", 10)
		return err
	}
	testkit.Eventually(t, "nothing is reserved beside an older generator", func() bool {
		beat(`{"node":"old","id":"4","installation":"own"}`)
		err := take()
		if err == nil {
			return false // it has not heard the older one yet
		}
		e, ok := errors.AsType[*bus.Error](err)
		return ok && e.Reason == bus.StoreUnavailable && strings.Contains(e.Message, "generator old ")
	})
	if err := mayBegin(t.Context()); !errors.Is(err, allocator.ErrUnavailable) || !strings.Contains(err.Error(), "generator old ") {
		t.Errorf("the ledger may be filled beside an older generator: %v", err)
	}
	if _, err := g.Take(t.Context(), "full", 1); err != nil {
		t.Errorf("memory does not go on: %v", err)
	}
	testkit.Eventually(t, "it reserves again when the older one has gone", func() bool {
		beat(`{"node":"old","id":"4","installation":"own","gone":true}`)
		return take() == nil
	})
	if err := mayBegin(t.Context()); err != nil {
		t.Errorf("the ledger may not be filled: %v", err)
	}
}

// With tags in JetStream nothing is claimed in a ledger, and generators of all versions run side by side.
func TestOlderPeerWithoutLedger(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	own := func(c *generator.Config) {
		c.Join = func(context.Context, func(context.Context) error) (generator.Identity, error) {
			return generator.Identity{Installation: "own"}, nil
		}
	}
	store := memory(t, "order")
	g := []*running{start(t, s, "a", store, own), start(t, s, "b", store, own)}
	for i := range 20 {
		if _, err := g[i%2].Take(t.Context(), "order", 10); err != nil {
			t.Fatal(err)
		}
	}
}

// A ledger that is unavailable for a while is an alert, once an episode, and missing in the state. IDs
// come from memory meanwhile.
func TestLedgerUnavailable(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	l := newLedger()
	fine := time.Now() // the look that finds the ledger away may have begun before it was
	g := start(t, s, "n", memory(t, "order"), func(c *generator.Config) { c.Ledger = l })
	stream := events(t, nc)
	away := errors.New("no leader")
	for episode := 1; episode <= 2; episode++ {
		l.away.Store(&away)
		if r := g.Readiness(); r.Ready || strings.Join(r.Missing, " ") != "ledger" || r.Reasons["ledger"] != "no leader" || !r.Segment {
			t.Errorf("readiness: %+v", r)
		}
		testkit.Eventually(t, "the alert", func() bool { return len(stream("leaf.ledger.unavailable")) == episode })
		e := stream("leaf.ledger.unavailable")[episode-1]
		body := e.Body.(bus.LedgerUnavailableEvent)
		if since := time.UnixMilli(body.SinceMS); since.Before(fine.Truncate(time.Millisecond)) || since.After(e.Time.Add(-900*time.Millisecond)) {
			t.Errorf("the ledger went away after %v, the alert of %v says %v", fine, e.Time, since)
		}
		if e.Key != "n" || e.Severity != "alert" || !strings.HasPrefix(string(e.Data), `{"node":"n","error":"no leader","since_ms":`) {
			t.Errorf("the alert is %+v: %s", e, e.Data)
		}
		if _, err := g.Take(t.Context(), "order", 1); err != nil {
			t.Errorf("it does not go on: %v", err)
		}
		l.away.Store(nil)
		testkit.Eventually(t, "its end", func() bool { return len(stream("leaf.ledger.recovered")) == episode })
		if e := stream("leaf.ledger.recovered")[episode-1]; e.Key != "n" || e.Severity != "info" || string(e.Data) != `{"node":"n","episode":"unavailable"}` {
			t.Errorf("its end is %+v: %s", e, e.Data)
		}
		if r := g.Readiness(); !r.Ready {
			t.Errorf("readiness: %+v", r)
		}
		fine = stream("leaf.ledger.recovered")[episode-1].Time
	}
	if n := len(stream("leaf.ledger.unavailable")); n != 2 {
		t.Errorf("%d alerts of two episodes", n)
	}
}

// A ledger that was lost is an alert, until it is filled again.
func TestLedgerReplaced(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	l := newLedger()
	start(t, s, "n", memory(t), func(c *generator.Config) { c.Ledger = l })
	stream := events(t, natskit.Connect(t, s))
	away := errors.New("being filled")
	l.away.Store(&away)
	l.lost <- "made anew"
	testkit.Eventually(t, "the alert", func() bool { return len(stream("leaf.ledger.replaced")) == 1 })
	if e := stream("leaf.ledger.replaced")[0]; e.Key != "n" || e.Severity != "alert" || string(e.Data) != `{"node":"n","cause":"made anew"}` {
		t.Errorf("the alert is %+v: %s", e, e.Data)
	}
	if n := len(stream("leaf.ledger.recovered")); n > 0 {
		t.Error("it is over before the ledger is filled")
	}
	l.away.Store(nil)
	testkit.Eventually(t, "its end", func() bool { return len(stream("leaf.ledger.recovered")) > 0 })
	if e := stream("leaf.ledger.recovered")[0]; e.Key != "n" || string(e.Data) != `{"node":"n","episode":"replaced"}` {
		t.Errorf("its end is %+v: %s", e, e.Data)
	}
}
