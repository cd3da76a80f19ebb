package tests

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// evidence is where an audit of an installation reads. url leads to its NATS.
func evidence(t *testing.T, url string) audit.Source {
	t.Helper()
	nc := connect(t, url)
	return audit.FromClient(bus.NewClient(nc, bus.Timeout(patience)), jetStream(t, nc))
}

// runAudit audits an installation. A cluster that was just restarted may have no leader yet: then the audit is an error.
func runAudit(t *testing.T, url string, o audit.Options) *audit.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	from := evidence(t, url)
	var report *audit.Report
	testkit.Eventually(t, "an audit that can read everything", func() (read bool) {
		var err error
		if report, err = audit.Run(ctx, from, o); err != nil {
			t.Log(err)
		}
		return err == nil
	})
	return report
}

// kindsOf is how many contradictions of each kind an audit found.
func kindsOf(report *audit.Report) map[bus.ContradictionKind]int {
	kinds := make(map[bus.ContradictionKind]int)
	for _, c := range report.Contradictions {
		kinds[c.Kind]++
	}
	return kinds
}

// auditAgrees audits an installation, and compares it with the IDs that callers took. It fails the test with each
// contradiction of a kind that is not expected, and if the report's numbers do not add up.
func auditAgrees(t *testing.T, url string, o audit.Options, expected ...bus.ContradictionKind) *audit.Report {
	t.Helper()
	report := runAudit(t, url, o)
	for _, c := range report.Contradictions {
		if !slices.Contains(expected, c.Kind) {
			t.Errorf("the audit finds a contradiction: %s: %s", c.Kind, c.Message)
		}
	}
	addsUp(t, report)
	if report.Events == 0 {
		t.Error("the audit read no event")
	}
	for _, r := range []*audit.TakenReport{report.Taken, report.TakenSnowflakes} {
		if r != nil && (r.IDs == 0 || r.Repeated > 0 || r.Unclaimed > 0) {
			t.Errorf("of %d IDs that were taken, %d were taken again, and %d never claimed", r.IDs, r.Repeated, r.Unclaimed)
		}
	}
	return report
}

// addsUp checks the numbers of a report without contradictions: each ID of a tag from the lowest in an event up to the
// end of all claims is counted once.
func addsUp(t *testing.T, report *audit.Report) {
	t.Helper()
	if len(report.Tags) == 0 {
		t.Error("the audit knows no tag")
	}
	var events, possible int64
	for _, a := range report.Tags {
		events += a.Events
		possible += a.Lost + a.Unreported + int64(a.From)
		if a.Events == 0 {
			continue
		}
		if sum := a.Reported + a.Lost + a.Skipped + a.Unreported; sum != int64(a.End-a.From) {
			t.Errorf("%s: %d reported + %d lost + %d skipped + %d unreported are %d IDs, and from %d up to the end %d are %d",
				a.Tag, a.Reported, a.Lost, a.Skipped, a.Unreported, sum, a.From, a.End, a.End-a.From)
		}
		var shares bus.Share
		for _, s := range a.Shares {
			shares.Refills, shares.IDs = shares.Refills+s.Refills, shares.IDs+s.IDs
		}
		if shares.Refills != a.Events || shares.IDs < a.Reported { // an event may be in the stream twice
			t.Errorf("%s: the generators' shares are %d refills of %d IDs, and %d events report %d", a.Tag, shares.Refills, shares.IDs, a.Events, a.Reported)
		}
	}
	if events > report.Events {
		t.Errorf("tags have %d events, of %d that were read", events, report.Events)
	}
	if r := report.Taken; r != nil && r.Unreported > possible && !slices.ContainsFunc(report.Tags, func(a bus.TagAudit) bool { return a.Events == 0 }) {
		t.Errorf("%d IDs that were taken are in no event, and at most %d can be", r.Unreported, possible)
	}
}

// agrees compares what a load took, which has ended, with an audit.
func (l *load) agrees(url string, expected ...bus.ContradictionKind) *audit.Report {
	l.t.Helper()
	o := audit.Options{Taken: &l.taken}
	if l.cfg.tag == "" {
		o = audit.Options{TakenSnowflakes: &l.flakes}
	}
	report := auditAgrees(l.t, url, o, expected...)
	if taken := cmp.Or(report.Taken, report.TakenSnowflakes); taken.IDs != l.ids.Load() {
		l.t.Errorf("the audit knows %d IDs that were taken, and callers took %d", taken.IDs, l.ids.Load())
	}
	return report
}
