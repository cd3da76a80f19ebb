//go:build drills

package tests

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// auditor audits an installation every second.
type auditor struct {
	t      *testing.T
	behind atomic.Bool // the database may be behind the ledger: it was set back, and is not healed yet
	cancel context.CancelFunc
	wg     sync.WaitGroup

	audits, failed, found int
	longest               time.Duration
	failure               error // the last one
}

func startAuditor(t *testing.T, url string) *auditor {
	t.Helper()
	a := &auditor{t: t}
	from := evidence(t, url)
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.wg.Go(func() {
		for every := time.NewTicker(time.Second); ; {
			select {
			case <-every.C:
				a.audit(ctx, from)
			case <-ctx.Done():
				every.Stop()
				return
			}
		}
	})
	t.Cleanup(a.end)
	return a
}

func (a *auditor) end() {
	a.cancel()
	a.wg.Wait()
}

// audit audits once. A reading may fail while generators are killed and frozen; what it finds must be true.
func (a *auditor) audit(over context.Context, from audit.Source) {
	ctx, cancel := context.WithTimeout(over, 10*time.Second)
	defer cancel()
	behind, began := a.behind.Load(), time.Now()
	report, err := audit.Run(ctx, from, audit.Options{})
	behind = behind || a.behind.Load()
	if over.Err() != nil {
		return
	}
	if err != nil {
		a.failed, a.failure = a.failed+1, err
		return
	}
	a.audits++
	a.longest = max(a.longest, time.Since(began))
	for _, c := range report.Contradictions {
		if a.found++; c.Kind != bus.StoreBehind || !behind {
			a.t.Errorf("an audit at %v finds a contradiction: %s: %s", began.Format(time.TimeOnly), c.Kind, c.Message)
		}
	}
}

func (a *auditor) stop() {
	a.t.Helper()
	a.end()
	a.t.Logf("%d audits meanwhile, the longest in %v; %d more could not read everything (the last: %v); a database behind the ledger was found %d times",
		a.audits, a.longest.Round(time.Millisecond), a.failed, a.failure, a.found)
	if a.audits == 0 {
		a.t.Error("no audit ended")
	}
}

// addresses are where the generators serve HTTP.
func (f *fleet) addresses() *[]string {
	var all []string
	for _, g := range f.generators {
		all = append(all, g.http)
	}
	return &all
}

// crash kills a generator, and starts it again in its folder.
func (f *fleet) crash(i int, meanwhile func()) {
	f.t.Helper()
	g := f.generators[i]
	g.kill()
	meanwhile()
	f.generators[i] = serve(f.t, g.dir, append(slices.Clone(f.args), "--node", g.node)...)
}

// Callers of all kinds take millions of IDs from three generators, which are killed and frozen. The database fails
// over to a replica that is seconds behind. An audit every second finds nothing but that; and at the end what was
// taken agrees with what was claimed.
func TestDrillAudit(t *testing.T) {
	t.Run("tags in MySQL", func(t *testing.T) { drillAudit(t, newPair(t)) })
	t.Run("tags in JetStream", func(t *testing.T) { drillAudit(t, nil) })
}

func drillAudit(t *testing.T, p *pair) {
	seed := allocatortest.Seed(t)
	url := newNATS(t).ClientURL()
	f := &fleet{t: t, args: []string{"-s", url, "--http", "127.0.0.1:0", "--tag", "order:10000", "--tag", "coupon:500", "--max-step", "50000"}}
	if p != nil {
		f.args = append(f.args, "--mysql", p.dsn())
	}
	for range 3 {
		f.grow()
	}
	a := startAuditor(t, url)
	s := startTakers(t, url)
	began := time.Now()
	more := func(replies int64) {
		s.http.Store(f.addresses())
		for _, l := range []*load{s.order, s.coupon, s.flakes} {
			l.more(replies)
			l.checkIDs()
		}
	}
	for range 4 {
		more(1000)
		f.crash(seed.IntN(3), func() { more(300) })
		more(1000)
		frozen := f.generators[seed.IntN(3)]
		frozen.freeze()
		more(50) // NATS still gives a third of the requests to it
		frozen.signal(syscall.SIGCONT)
		more(1000)
		if p != nil {
			failOverAudited(t, p, f, a, s, more)
		}
	}
	more(1000)
	a.stop()
	o := s.stop()
	lasted := time.Since(began)
	began = time.Now()
	report := auditAgrees(t, url, o)
	took := time.Since(began)
	ids, tags := report.Taken.IDs, s.order.ids.Load()+s.coupon.ids.Load()
	if ids != tags || ids < 1_000_000 {
		t.Errorf("the audit knows %d IDs that were taken, and callers took %d: want millions", ids, tags)
	}
	if flakes := report.TakenSnowflakes; flakes.IDs != s.flakes.ids.Load() {
		t.Errorf("the audit knows %d snowflakes that were taken, and callers took %d", flakes.IDs, s.flakes.ids.Load())
	}
	began = time.Now()
	out := leafOK(t, append([]string{"audit", "-s", url}, s.files()...)...) // exit status 0: no contradiction
	t.Logf("leaf audit, in %v:\n%s", time.Since(began).Round(time.Millisecond), out)
	for _, tag := range report.Tags {
		t.Logf("%s: claimed below %d; %d events report %d IDs; %d lost in %d gaps, %d skipped, %d unreported", tag.Tag, tag.End, tag.Events,
			tag.Reported, tag.Lost, tag.Gaps, tag.Skipped, tag.Unreported)
	}
	longest := max(s.order.longest.Load(), s.coupon.longest.Load(), s.flakes.longest.Load())
	t.Logf("in %v %d IDs of tags and %d snowflakes were taken; %d and %d of them are in no event. The audit read %d events in %v. "+
		"Longest time without an answer for a caller with a deadline of %v: %v", lasted.Round(time.Second), ids, s.flakes.ids.Load(),
		report.Taken.Unreported, report.TakenSnowflakes.Unreported, report.Events, took.Round(time.Millisecond), probeDeadline, time.Duration(longest).Round(time.Millisecond))
}

// failOverAudited makes a replica the primary that is behind, and waits until it is healed. Only until then audits may find
// it behind the ledger. A generator begins anew meanwhile.
func failOverAudited(t *testing.T, p *pair, f *fleet, a *auditor, s *takers, more func(int64)) {
	t.Helper()
	p.lag(200_000, 2*time.Second)
	a.behind.Store(true)
	was, is := p.failOver()
	f.forget()
	js := jetStream(t, connect(t, s.url))
	db := p.db(p.primary, p.name)
	testkit.Eventually(t, "a database that is not behind the ledger", func() bool {
		s.order.checkIDs()
		for _, tag := range []string{"order", "coupon"} {
			if end := claimedEnd(t, js, tag); maxIDOf(t, db, tag) < end {
				return false
			}
		}
		return s.order.highest.Load() > was+50_000
	})
	a.behind.Store(false)
	t.Logf("the new primary lacked %d IDs", was-is)
	more(1000)
	must(t, p.servers[1-p.primary].Run())
	p.replicate()
}
