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
			"if c.First <= o.Last {", "if c.First < o.First {"}},
		{"a claim is compared only with the one before it", "TestContradictionAmongThousandsOfEvents", mutate.Edit{"tag.go",
			"if c.Last > o.Last {", "if true {"}},
		{"the last claim of the record is not compared with the events", "TestContradictoryClaims", mutate.Edit{"tag.go",
			"claims = sorted(claims, l)", "claims = sorted(claims, nil)"}},
		{"a claim at the end of all claims is not seen", "TestTagTrail", mutate.Edit{"tag.go",
			"c.message == 0 || c.Last < end", "c.message == 0 || c.Last <= end"}},
		{"a claim is the same as one of another generator", "TestContradictoryClaims", mutate.Edit{"claim.go",
			"c.Range == o.Range && c.node == o.node && (", "c.Range == o.Range && ("}},
		{"an event that was published twice is two claims", "TestContradictoryClaims", mutate.Edit{"claim.go",
			"claims = slices.CompactFunc(claims, claim.same)\n", ""}},
		{"suspicious records are read again at once, by the same replica", "TestReplicasAreAwaited", mutate.Edit{"workers.go",
			"time.After(cmp.Or(s.lag, replicaLag))", "time.After(cmp.Or(s.lag, 1))"}},
		{"events that were removed while they were read are not missed", "TestReadingEnds", mutate.Edit{
			"../internal/stream/read.go", "return errStalled", "return nil"}},
		{"a server that is cut off shows that there are no events", "TestReadingFromADeposedLeader", mutate.Edit{
			"../internal/stream/read.go", "	if err != nil {\n		return unanswered(ctx, err)\n	}\n	defer", "	if err != nil {\n		return nil\n	}\n	defer"}},
		{"a reading ends where a replica has no more", "TestReadingFromAReplicaThatLags", mutate.Edit{
			"../internal/stream/read.go", "if about.Sequence.Stream >= last.Sequence && (!newest || about.NumPending == 0) {",
			"if about.NumPending == 0 {"}},
		{"a reading without a stream fails", "TestNothingToRead", mutate.Edit{
			"../internal/stream/read.go", "	case errors.Is(err, jetstream.ErrStreamNotFound):\n		return nil, nil\n", ""}},
		{"an ID older than the stream was lost, for certain", "TestTraceTag", mutate.Edit{"trace.go",
			"case older:", "case false:"}},
		{"a time after a release counts as held", "TestTraceWorker", mutate.Edit{"worker.go",
			"if h != nil && h.over && ms >= h.until {", "if false {"}},
		{"a release of an earlier holder ends the tenure of the next one", "TestWorkerTrail", mutate.Edit{"worker.go",
			"case h.over || w.replaced(h, e.ReservedUntilMS):", "case h.over:"}},
		{"two generators may hold a worker at once", "TestWorkerTrail", mutate.Edit{"worker.go",
			"return max(t.start(), o.start()) < min(t.until, o.until) &&", "return max(t.start(), o.start()) < min(t.from, o.from) &&"}},
		{"the end of all claims counts as claimed", "TestTakenIsCompared", mutate.Edit{"taken.go",
			"		if r.Last < end {\n			continue", "		if r.Last <= end {\n			continue"}},
		{"counts of huge ranges overflow", "TestTakenCountsAreBounded", mutate.Edit{"runs.go",
			"if sum := a + b; sum >= a {", "if sum := a + b; true {"}},
		{"the IDs of an opaque tag count as its numbers", "TestTakenOfAnOpaqueTag", mutate.Edit{"taken.go",
			"case record.Opaque != \"\":", "case record.Opaque == \"-\":"}},
		{"a damaged record has an end", "TestTagTrailOfADamagedRecord", mutate.Edit{"tag.go",
			"	if a.Problem == \"\" { // else", "	if true { // else"}},
		{"a strict tag's older IDs are a gap", "TestTraceTag", mutate.Edit{"trace.go",
			"case r.Order == idspace.OrderStrict:", "case false:"}},
		{"a generator may name another tag in its event", "TestDamagedEvents", mutate.Edit{"claim.go",
			"!ok || e.Tag != name || ", "!ok || "}},
		{"records are read before the events", "TestClaimsDuringAnAudit", mutate.Edit{"audit.go",
			"	for _, name := range names { // all events",
			"	if err = a.Records(ctx, \"\", func(r Record) { a.tag(r.Tag).record = r }); err == nil {\n" +
				"		a.Records = func(context.Context, string, func(Record)) error { return nil }\n	}\n" +
				"	for _, name := range names { // all events"}},
		{"a worker that just changed hands has two holders", "TestWorkersAreReadAgain", mutate.Edit{"workers.go",
			"if err == nil && len(found.Contradictions) > 0 {", "if false {"}},
		{"a replica that lags behind makes a snowflake impossible", "TestTraceSnowflake", mutate.Edit{"trace.go",
			"err != nil || t.Outcome != Impossible {", "true {"}},
		{"a worker takes any amount of memory", "TestWorkerTrailIsBounded", mutate.Edit{"worker.go",
			"		if len(w.tenures) == mostTenures {", "		if false {"}},
		{"an ID that was taken twice is not seen", "TestRandomRuns", mutate.Edit{"runs.go",
			"if r.First <= last.Last {", "if r.First < last.Last {"}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edit) })
	}
}
