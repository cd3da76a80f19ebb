//go:build mutations

package audit

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes, which break a promise of an audit: that it finds what
// contradicts, and takes nothing for proof that is none.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name, by string // by finds it
		edit     mutate.Edit
	}{
		{"two claims of the same IDs are not seen", "TestRandomHistories", mutate.Edit{"tag.go",
			"for _, r := range repeated {", "for _, r := range repeated[:0] {"}},
		{"the last claim of the record is not compared with the events", "TestContradictoryClaims", mutate.Edit{"tag.go",
			"if slices.ContainsFunc(runs, r.Overlaps) {", "if false {"}},
		{"a claim at the end of all claims is not seen", "TestTagTrail", mutate.Edit{"tag.go",
			"if t.top.Last >= int64(c.End) && t.events > 0 {", "if t.top.Last > int64(c.End) && t.events > 0 {"}},
		{"a claim is the same as one of another generator", "TestContradictoryClaims", mutate.Edit{"doubt.go",
			"w.Last == o.Last && w.Node == o.Node && (", "w.Last == o.Last && ("}},
		{"a deletion forgets the claims of a tag's former life", "TestContradictoryClaims", mutate.Edit{"events.go",
			"			a.tag(e.Tag).move(int64(e.MaxID))\n",
			"			if strings.Contains(msg.Subject(), \".tag.deleted.\") {\n				delete(a.tags, e.Tag)\n			}\n			a.tag(e.Tag).move(int64(e.MaxID))\n"}},
		{"suspicious records are read again at once, by the same replica", "TestReplicasAreAwaited", mutate.Edit{"audit.go",
			"time.After(cmp.Or(s.lag, replicaLag))", "time.After(cmp.Or(s.lag, 1))"}},
		{"a record that has moved on hides an event", "TestContradictionsDuringAnAudit", mutate.Edit{"audit.go",
			"suspects[c.Tag] = append(suspects[c.Tag], doubts...)", "suspects[c.Tag] = doubts"}},
		{"events that were removed while they were read are not missed", "TestReadingEnds", mutate.Edit{"read.go",
			"return fmt.Errorf(\"reading stream %s: %w\", events.Stream, errStalled)", "return nil"}},
		{"a server that is cut off shows that there are no events", "TestReadingFromADeposedLeader", mutate.Edit{"read.go",
			"return unanswered(ctx, fmt.Errorf(\"reading stream %s: %w\", events.Stream, err))", "return nil"}},
		{"a reading ends where a replica has no more", "TestReadingFromAReplicaThatLags", mutate.Edit{"read.go",
			"if about.Sequence.Stream >= last.Sequence && (!newest || about.NumPending == 0) {", "if about.NumPending == 0 {"}},
		{"an ID older than the stream was lost, for certain", "TestTraceTag", mutate.Edit{"trace.go",
			"case t.Since.IsZero() || id < lowest:", "case t.Since.IsZero():"}},
		{"a time of a worker counts as unclaimed although events may be missing", "TestTraceWorker", mutate.Edit{"worker.go",
			" && t.after > 0 && t.after < before {", " {"}},
		{"a release of an earlier holder ends the tenure of the next one", "TestWorkerTrail", mutate.Edit{"worker.go",
			"case h != nil && !h.over && !w.replaced(h, e.ReservedUntilMS):", "case h != nil:"}},
		{"two generators may hold a worker at once", "TestWorkerTrail", mutate.Edit{"worker.go",
			"return max(t.start(), o.start()) < min(t.until, o.until) &&", "return max(t.start(), o.start()) < min(t.from, o.from) &&"}},
		{"the end of all claims counts as claimed", "TestTakenIsCompared", mutate.Edit{"taken.go",
			"		if r.Last < end {\n			continue", "		if r.Last <= end {\n			continue"}},
		{"an ID that was taken twice is not seen", "TestRandomRuns", mutate.Edit{"runs.go",
			"case r.Last >= last.First:", "case r.Last > last.First:"}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edit) })
	}
}
