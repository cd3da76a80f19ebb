package generator_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// ledger is what a generator knows of its ledger, as a test sets it.
type ledger struct{ away atomic.Pointer[error] }

func (l *ledger) Err() error {
	if err := l.away.Load(); err != nil {
		return *err
	}
	return nil
}

func (l *ledger) OnShadow(func(tag string, shadowed bool)) {}

func (l *ledger) Keep(ctx context.Context, _ func(context.Context) error, _ func(string)) {
	<-ctx.Done()
}

// A ledger that is unavailable for a while is an alert, once an episode, and missing in the state. IDs
// come from memory meanwhile.
func TestLedgerUnavailable(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	l := new(ledger)
	fine := time.Now() // the look that finds the ledger away may have begun before it was
	g := start(t, s, "n", memory(t, "order"), func(c *generator.Config) { c.Ledger = l })
	stream := eventsOn(t, nc)
	away := errors.New("no leader")
	for episode := 1; episode <= 2; episode++ {
		l.away.Store(&away)
		if r := g.Readiness(); r.Ready || strings.Join(r.Missing, " ") != "ledger" || r.Reasons["ledger"] != "no leader" || !r.Segment {
			t.Errorf("readiness: %+v", r)
		}
		testkit.Eventually(t, "the alert", func() bool { return len(stream("leaf.ledger.unavailable")) == episode })
		e := stream("leaf.ledger.unavailable")[episode-1]
		body := e.Body.(events.LedgerUnavailable)
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
