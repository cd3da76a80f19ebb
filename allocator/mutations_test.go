//go:build mutations

package allocator_test

import (
	"slices"
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// mutation is a change of the code that breaks a promise.
type mutation struct {
	name  string
	by    string // the test that finds it; default: the simulation
	edits []edit
}

type edit = mutate.Edit

// TestMutations demands that a test finds each mutation. It checks the tests, not the code,
// and takes minutes: `make mutations`.
func TestMutations(t *testing.T) {
	simulation := mutate.Runner{
		By:   "TestSimulation",
		Says: `(?ms)^\s+simulation_test\.go:\d+: (.{1,1000}?\n\s*in world \d+)`,
		Env:  []string{"LEAF_TEST_WORLDS=4500"},
	}
	all := slices.Concat(mutations, promiseMutations, simulatedMutations, claimMutations, pollMutations, reconcileMutations, strictMutations,
		rulesMutations, handOverMutations)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			if m.by == "" {
				simulation.Run(t, "", m.edits...)
			} else {
				mutate.Runner{}.Run(t, m.by, m.edits...)
			}
		})
	}
}

var mutations = []mutation{
	// A range is what the store returned, and starts above all that was seen before the request.
	{name: "a range below what was seen is used", by: "TestBelowFrom", edits: []edit{{"refill.go",
		"	if err := grant.check(seen); err != nil {\n		return Grant{}, err\n	}\n", ""}}},
	{name: "the last ID that was seen is used again", by: "TestBelowFrom", edits: []edit{{"plan.go",
		"g.First < max(from, 1)", "g.First < max(from-1, 1)"}}},
	{name: "an ID below 1 is used", by: "TestNonsense", edits: []edit{{"plan.go",
		"g.First < max(from, 1)", "g.First < from"}}},
	{name: "a range that ends before it begins is used", by: "TestNonsense", edits: []edit{{"plan.go",
		" || g.Last < g.First || ", " || "}}},
	{name: "a range of step 0 is used", by: "TestNonsense", edits: []edit{{"plan.go",
		" || g.Step < 1 {", " {"}}},
	{name: "the largest int64 is used, which has no end above it", by: "TestNonsense", edits: []edit{{"plan.go",
		" || g.Last == math.MaxInt64 ", " || g.Last == math.MinInt64 "}}},
	{name: "the store is not asked for a range above what was seen", by: "TestAdvanced", edits: []edit{{"refill.go",
		"a.reserveIDs(ctx, tag, p, seen)", "a.reserveIDs(ctx, tag, p, 1)"}}},
	{name: "a conflict with another generator is a failure", by: "TestAdvanced", edits: []edit{{"refill.go",
		"case !errors.Is(err, ErrConflict):", "case true:"}}},
	{name: "the last IDs of a tag are not reserved", by: "TestExhaustedWaiters", edits: []edit{{"claims.go",
		"left < n && (s.Order == Strict || left == 0) {", "left < n {"}}},

	// Marks.
	{name: "the mark of a range is one too low", by: "TestAdvanced", edits: []edit{{"refill.go",
		"a.mark(tag, grant.Last+1)", "a.mark(tag, grant.Last)"}, {"refill.go",
		"	a.cfg.Index.note(grant.Stored, false)\n", ""}}},
	{name: "a range is used before its mark is written", by: "TestOverlapInOrder", edits: []edit{{"refill.go",
		"	a.mark(tag, grant.Last+1)\n", "	go a.mark(tag, grant.Last+1)\n"}}},
	{name: "a mark is kept in memory only", by: "TestMarks", edits: []edit{{"index.go",
		"		x.setLocked(tag, e)\n		x.dirtyLocked(tag, end)\n", "		x.setLocked(tag, e)\n"}}},
	{name: "a lower report replaces a mark", by: "TestMarks", edits: []edit{{"index.go",
		"	if end > e.end {\n", "	if end != e.end {\n"}}},
	{name: "the last mark in the file counts, not the highest", by: "TestMarksDamaged", edits: []edit{{"marks.go",
		"numbers[tag] = max(numbers[tag], number)", "numbers[tag] = number"}}},
	{name: "a damaged mark counts", by: "TestMarksDamaged", edits: []edit{{"marks.go",
		" || uint32(want) != crc32.ChecksumIEEE(text)", " || want == 1<<40"}}},
	{name: "a torn line spoils the next", by: "TestMarksFullDisk", edits: []edit{{"marks.go",
		"	w.WriteByte('\\n')", "	//"}}},
	{name: "marks that could not be written are forgotten", by: "TestFullDiskIsMadeUpFor", edits: []edit{{"marks.go",
		"	if err != nil {\n		x.mu.Lock()", "	if false {\n		x.mu.Lock()"}}},
	{name: "marks are added to a file that was replaced", by: "TestMarksCompaction", edits: []edit{{"marks.go",
		"	m.file = f\n	if failed", "	if m.file == nil {\n		m.file = f\n	}\n	if failed"},
		{"marks.go", "		m.file.Close()\n", ""}}},
	{name: "a rewrite keeps the present marks only", by: "TestMarksCompaction", edits: []edit{{"marks.go",
		"	failed := writeLines(m.path, ends)", "	failed := writeLines(m.path, x.dirty)"}}},
	{name: "the file of the marks grows for ever", by: "TestMarksCompaction", edits: []edit{{"marks.go",
		"if m.lines+len(marks) > 2*tags+slackLines {", "if false {"}}},
	{name: "a file that cannot be read is an empty one", by: "TestMarksUnwritable", edits: []edit{
		{"marks.go", "		return numbers, err\n", "		return numbers, nil\n"}}},
	{name: "refills wait for a disk that hangs", by: "TestDiskHangs", edits: []edit{{"marks.go",
		"return x.file.disk.Run(x.write)", "return x.file.disk.RunWithin(time.Hour, x.write)"}}},
	{name: "a disk that hangs is tried by every refill", by: "TestRunner", edits: []edit{{"disk/runner.go",
		"time.Since(*since) >= r.wait", "false"}}},
	{name: "two disk operations at a time", by: "TestRunner", edits: []edit{{"disk/runner.go",
		"		<-r.turn\n		ended <- err", "		ended <- err"},
		{"disk/runner.go", "	now := time.Now()\n", "	<-r.turn\n	now := time.Now()\n"}}},

	// One refill of a tag at a time, bounded for all tags.
	{name: "two refills of a tag at a time", by: "TestOneRefillAtATime", edits: []edit{{"refill.go",
		"if b.wake != nil || a.ctx", "if a.ctx"}}},
	{name: "a refill and a load ahead at a time", by: "TestAheadOnlyWhatIsEmpty", edits: []edit{{"evict.go",
		"if b.wake != nil || !b.refilled", "if !b.refilled"}}},
	{name: "a tag that has IDs is loaded ahead", by: "TestAheadOnlyWhatIsEmpty", edits: []edit{{"evict.go",
		" || !b.refilled.IsZero()", ""}}},
	{name: "a refill that ends stays the owner", by: "TestPrefetch", edits: []edit{{"buffer.go",
		"b.wake, b.heard = nil, nil", "b.heard = nil"}}},
	{name: "refills are not bounded", by: "TestRefillsAreBounded", edits: []edit{{"allocator.go",
		"make(chan struct{}, maxRefills)", "make(chan struct{}, 100*maxRefills)"}}},
	{name: "refills of locked tags are not bounded", by: "TestLockedTags", edits: []edit{{"refill.go",
		"	if p.locked {", "	if false {"}}},
	{name: "loads ahead are not bounded", by: "TestAhead", edits: []edit{{"evict.go",
		"make(chan struct{}, aheadAtOnce)", "make(chan struct{}, 100)"}}},
	{name: "a store that is away is asked for every recent tag", by: "TestAheadStoreAway", edits: []edit{{"evict.go",
		" || failures.Load() >= aheadFailures", ""}}},
	{name: "pauses between attempts do not grow", by: "TestPausesBeginAnew", edits: []edit{{"refill.go",
		"firstPause<<min(attempt, 10)", "firstPause"}}},
	{name: "pauses grow over successes", by: "TestPausesBeginAnew", edits: []edit{{"refill.go",
		"			attempt = 0\n", ""}}},
	{name: "a failed refill is not retried without a request", by: "TestUnavailable", edits: []edit{{"plan.go",
		"b.exhausted || b.failure == nil && !b.nextDueLocked()", "b.exhausted || !b.nextDueLocked()"}}},

	// Floors and deletions.
	{name: "a lower floor replaces a higher one", by: "TestMaxIDMovedDuringRefill", edits: []edit{{"buffer.go",
		"	if floor <= b.floor {", "	if floor == b.floor || floor == 0 {"}}},
	{name: "a floor is off by one", by: "TestMerge", edits: []edit{{"buffer.go",
		"s.Next, s.Last = max(s.Next, b.floor), ", "s.Next, s.Last = max(s.Next, b.floor-1), "}}},
	{name: "a floor of a tag that is not in memory is ignored", by: "TestFloorOfATagThatIsNotInMemory", edits: []edit{{"reconcile.go",
		"			a.cfg.Index.Observe(s.Name, floor) // also", "			// also"}}},
	{name: "the floor of a tombstone is ignored", by: "TestMerge", edits: []edit{{"tag.go",
		"	if t.Deleted {\n		return t.MaxID\n	}\n", ""}}},
	{name: "a deleted tag stays in memory", by: "TestMerge", edits: []edit{{"reconcile.go",
		"	if s.Deleted {\n		a.forget(b)\n	}\n", ""}}},
	{name: "a deleted tag is loaded ahead", by: "TestAhead", edits: []edit{{"index.go",
		" && !e.deleted && e.revision != 0 {", " && e.revision != 0 {"}}},
	{name: "a buffer that is gone takes the tag's new one with it", by: "TestForgetGone", edits: []edit{{"allocator.go",
		"if b.gone || !condition() {", "if !condition() {"}}},
	{name: "max_id moves backwards", by: "TestWith", edits: []edit{{"tag.go",
		"*c.MaxID < at {", "*c.MaxID < 1 {"}}},
	{name: "max_id moves below the floor", by: "TestWith", edits: []edit{{"tag.go",
		"at := max(t.MaxID, t.Floor);", "at := t.MaxID;"}}},
	{name: "an operator's max_id is no floor", by: "TestWith", edits: []edit{{"tag.go",
		"t.MaxID, t.Floor = *c.MaxID, *c.MaxID", "t.MaxID = *c.MaxID"}}},

	// A store that went backwards and was moved up.
	{name: "a store that was moved up is no alert", by: "TestAdvanced", edits: []edit{{"refill.go",
		"			a.advanced(b, moved)\n", "			_ = moved\n"}}},
	{name: "a store that was moved up is an outage", by: "TestAdvanced", edits: []edit{{"errors.go",
		"func (e *AdvancedError) Unwrap() error { return ErrConflict }", "func (e *AdvancedError) Unwrap() error { return ErrUnavailable }"}}},
	{name: "the alert that it went backwards has no end", by: "TestAdvanced", edits: []edit{{"alarms.go",
		"		if b.alerts[episode] {\n", "		if b.alerts[episode] && episode != regressed {\n"}}},
	{name: "the alert that it went backwards is sent again and again", by: "TestEpisodesOfAdvances", edits: []edit{{"alarms.go",
		"!b.alerts[regressed] || e.Action == Dropped", "true"}}},
	{name: "the alert that it went backwards comes once in a life", by: "TestAdvanced", edits: []edit{{"alarms.go",
		"	b.alerts, b.failure = alerts{}, nil\n", "	b.alerts, b.failure = alerts{regressed: b.alerts[regressed]}, nil\n"}}},

	// Two generators that hold one range.
	{name: "what another generator reserved is not noted", by: "TestOverlap", edits: []edit{{"index.go",
		"	if s.MaxID > e.end {\n", "	if first && s.MaxID > e.end {\n"}}},
	{name: "what another generator reserved is noted one too low", by: "TestOverlap", edits: []edit{{"index.go",
		"		e.end = s.MaxID\n		x.dirty", "		e.end = s.MaxID - 1\n		x.dirty"}}},
	{name: "a range that two hold stays in memory", by: "TestOverlap", edits: []edit{{"buffer.go",
		"		return overlaps\n", "		return false\n"}}},
	{name: "all that is in memory is dropped", by: "TestOverlap", edits: []edit{{"buffer.go",
		"		overlaps := s.overlaps(r, run)\n", "		overlaps := true\n"}}},
	{name: "a range that two hold is used", by: "TestOverlapWhilePending", edits: []edit{{"refill.go",
		"b.strict != nil || a.contestedLocked(b, grant.Range) {", "b.strict != nil {"}}},
	{name: "a range is compared only before it was reported", by: "TestOverlapWhilePending", edits: []edit{
		{"refill.go", "	a.cfg.Index.note(grant.Stored, false)\n", "	b.mu.Lock()\n	contested := a.contestedLocked(b, grant.Range)\n	b.mu.Unlock()\n	a.cfg.Index.note(grant.Stored, false)\n"},
		{"refill.go", "b.strict != nil || a.contestedLocked(b, grant.Range) {", "b.strict != nil || contested {"}}},
	{name: "what was reported while the store was asked is forgotten", by: "TestOverlapWhileAsked", edits: []edit{{"reconcile.go",
		"	if b.wake != nil && len(b.heard) < maxHeard {", "	if false {"}}},
	{name: "all that was reported while the store was asked drops the range", by: "TestOverlapWhileAsked", edits: []edit{{"refill.go",
		"slices.IndexFunc(b.heard, own.Overlaps)", "slices.IndexFunc(b.heard, func(Range) bool { return true })"}}},
	{name: "reports of an earlier request leave no room for those of the present one", by: "TestHeardForEachRequest", edits: []edit{{"refill.go",
		"		b.heard = nil\n", ""}}},
	{name: "reports during a request are not bounded", by: "TestHeardIsBounded", edits: []edit{{"reconcile.go",
		"b.wake != nil && len(b.heard) < maxHeard", "b.wake != nil"}}},
	{name: "reports are kept without a refill", by: "TestHeardIsBounded", edits: []edit{{"reconcile.go",
		"b.wake != nil && len(b.heard) < maxHeard", "len(b.heard) < maxHeard"}}},
	{name: "reports are kept after the refill", by: "TestHeardIsBounded", edits: []edit{{"buffer.go",
		"b.wake, b.heard = nil, nil", "b.wake = nil"}}},
	{name: "a range that was used up is not remembered", by: "TestOverlapOfAUsedRange", edits: []edit{{"buffer.go",
		"			b.spent = *s\n", ""}}},
	{name: "only the last IDs of a used-up range are remembered", by: "TestOverlapOfAUsedRange", edits: []edit{{"buffer.go",
		"			b.spent = *s\n", "			b.spent = Segment{Range: Range{First: s.Next, Last: s.Last}}\n"}}},
	{name: "a range that was used up is not compared", by: "TestOverlapOfAUsedRange", edits: []edit{{"buffer.go",
		"	if b.spent.overlaps(r, run) {", "	if false {"}}},
	{name: "a range that was used up is compared with nothing", by: "TestOverlapOfAUsedRange", edits: []edit{{"buffer.go",
		"	if b.spent.overlaps(r, run) {", "	if b.spent.First > 0 {"}}},
	{name: "a range that was used up is reported again and again", by: "TestOverlapOfAUsedRange", edits: []edit{{"buffer.go",
		"held, b.spent = append(held, b.spent.Range), Segment{}", "held = append(held, b.spent.Range)"}}},
	{name: "a generator that drops a range does not report it", by: "TestOverlap", edits: []edit{{"reconcile.go",
		"		a.cfg.Push(Stored{Tag: Tag{Name: tag, MaxID: h.Last + 1, Last: claim}}) //", "		_ = claim //"}}},
	{name: "a range that two hold is no alert", by: "TestOverlap", edits: []edit{{"reconcile.go",
		"		a.heldTwiceLocked(b, h, r)\n", "		_ = h\n"}}},
	{name: "all that this generator held is in doubt", by: "TestOverlap", edits: []edit{{"alarms.go",
		"Range{First: max(own.First, other.First), Last: min(own.Last, other.Last)}", "own"}}},
	{name: "a range in doubt is not reported beside another alert", by: "TestOverlap", edits: []edit{{"alarms.go",
		"(!b.alerts[regressed] || e.Action == Dropped)", "!b.alerts[regressed]"}}},
	{name: "nothing is reserved instead of what was dropped", by: "TestOverlap", edits: []edit{{"reconcile.go",
		"		a.refillLocked(b) // for the requests that wait\n", ""}}},

	// What was not there before.
	{name: "what was heard of is not in the file", by: "TestMarksHeard", edits: []edit{{"allocator.go",
		"		_ = a.cfg.Index.flush() // the", "		// the"}}},
	{name: "what was heard of is not in the file after a stop", by: "TestMarksHeard", edits: []edit{{"marks.go",
		"		err := x.write()\n", "		var err error\n"}}},
	{name: "the tags that were used first are loaded first", by: "TestAhead", edits: []edit{{"index.go",
		"cmp.Compare(used[b], used[a])", "cmp.Compare(used[a], used[b])"}}},

	// Memory.
	{name: "an ID is handed out twice", by: "TestPrefetch", edits: []edit{{"buffer.go",
		"		s.Next += n\n", "		s.Next += n - 1\n"}}},
	{name: "an ID too many is handed out", by: "TestPrefetch", edits: []edit{{"buffer.go",
		"Range{First: s.Next, Last: s.Next + n - 1})", "Range{First: s.Next, Last: s.Next + n})"}}},
	{name: "a used-up segment stays", by: "TestBatchesDoNotAdapt", edits: []edit{{"buffer.go",
		"n >= rest {", "n > rest {"}}},
	{name: "a buffer that is gone hands out IDs", by: "TestGoneIsLookedUpAgain", edits: []edit{{"memory.go",
		"if b.mu.Lock(); !b.gone { //", "if b.mu.Lock(); true { //"}}},
	{name: "the next segment is loaded late", by: "TestPrefetch", edits: []edit{{"plan.go",
		"return used >= size/10+min(size%10, 1)", "return used > size/10+min(size%10, 1)"}}},
	{name: "a third segment is loaded", by: "TestPrefetch", edits: []edit{
		{"allocator.go", "len(b.segments) < 2 && ", ""},
		{"plan.go", "	default:\n		return false\n	}", "	default:\n		return len(b.segments) < 3\n	}"}}},

	// Requests that wait.
	{name: "a waiter is settled twice", by: "TestLater", edits: []edit{{"later.go",
		"	waited := !l.ended\n	if waited {\n		l.EndLocked(nil, l", "	waited := true\n	if waited {\n		l.EndLocked(nil, l"}}},
	{name: "small requests take what is saved for a batch", by: "TestBatchKeepsItsShare", edits: []edit{{"allocator.go",
		"	if b.leftLocked() < n || b.saved {", "	if b.leftLocked() < n {"}}},
	{name: "others take what is saved for a batch", by: "TestBatchKeepsItsShare", edits: []edit{{"allocator.go",
		"	if !b.saved {\n", "	if true {\n"}}},
	{name: "what was saved for a batch that gives up waits for ever", by: "TestBatchKeepsItsShare", edits: []edit{{"waiter.go",
		"	b.serveLocked()\n", ""}}},
	{name: "a waiter stays in the queue when it gives up", by: "TestCancelledWaiter", edits: []edit{{"buffer.go",
		"	b.waiters.Remove(w.place)\n", "	if !refund {\n		b.waiters.Remove(w.place)\n	}\n"}}},
	{name: "waiters are served in reverse", by: "TestOverloaded", edits: []edit{
		{"waiter.go", "q.pushed, q.PushBack(w)", "q.pushed, q.PushFront(w)"}}},
	{name: "a waiter waits for ever", by: "TestMemoryFlowsOn", edits: []edit{{"later.go",
		"	case slow == nil:\n", "	case slow == nil && l == nil:\n"}}},
	{name: "a request that is withdrawn gets IDs", by: "TestSlow", edits: []edit{{"later.go",
		"		l.EndLocked(nil, l.gaveUp(why))\n", "		l.gaveUp(why)\n"}}},
	{name: "a slow request waits for ever", by: "TestLater", edits: []edit{{"later.go",
		"		l.timer.Reset(time.Until(l.deadline))\n", "		l.timer.Reset(time.Minute)\n"}}},
	{name: "a request waits for a store that is known to fail", by: "TestSlow", edits: []edit{{"waiter.go",
		"		return slowAtOnce\n", "		return slowAfter\n"}}},
	{name: "IDs are offered of a store that fails", by: "TestHas", edits: []edit{{"allocator.go",
		"return left, refills && a.Failing().Store == nil", "return left, true"}}},
	{name: "requests that wait are not bounded", by: "TestOverloaded", edits: []edit{{"allocator.go",
		"case a.waiting.Load() >= a.cfg.MaxWaiting:", "case false:"}}},
	{name: "one request too many waits", by: "TestOverloaded", edits: []edit{{"allocator.go",
		"a.waiting.Load() >= a.cfg.MaxWaiting:", "a.waiting.Load() > a.cfg.MaxWaiting:"}}},
	{name: "a settled request counts as waiting", by: "TestCancelledWaiter", edits: []edit{{"buffer.go",
		"	w.allocator.waiting.Add(-1) //", "	//"}}},
	{name: "requests wait although the store has failed for long", by: "TestUnavailable", edits: []edit{{"allocator.go",
		"case b.failure != nil && now.Sub(b.failure.since) >= a.cfg.MaxWait:", "case false:"}}},

	// What is reserved.
	{name: "a batch of 0 is served", by: "TestCount", edits: []edit{{"allocator.go",
		"	if n < 1 {", "	if n < 0 {"}}},
	{name: "a batch above the limit is served", by: "TestCount", edits: []edit{{"allocator.go",
		"	if n > a.cfg.MaxBatch {", "	if n > a.cfg.MaxBatch+1 {"}}},
	{name: "a batch ignores what is in memory", by: "TestBatchKeepsItsShare", edits: []edit{{"plan.go",
		"p.n, p.before = -b.leftLocked(), b.waiters.pushed", "p.n, p.before = 0, b.waiters.pushed"}}},
	{name: "less than a step is reserved", by: "TestOutlast", edits: []edit{{"plan.go",
		"p.n = max(p.need, p.step)", "p.n = p.need"}}},
	{name: "a batch counts as a segment", by: "TestBatchesDoNotAdapt", edits: []edit{{"refill.go",
		"	if cause != CauseBatch {", "	if true {"}}},
	{name: "the step triples", by: "TestStepper", edits: []edit{{"plan.go",
		"return step + min(step, most-step)", "return step + min(2*step, most-step)"}}},
	{name: "the step grows beyond its limit", by: "TestStepper", edits: []edit{{"plan.go",
		"return step + min(step, most-step)", "return step + step"}}},
	{name: "the step falls below the tag's", by: "TestStepper", edits: []edit{{"plan.go",
		"return max(step/2, s.base)", "return step / 2"},
		{"plan.go", "	s.step = max(step, s.base)", "	s.step = step"}}},
	{name: "the step doubles with the second segment", by: "TestStepper", edits: []edit{{"plan.go",
		"if s.loads < 2 {", "if s.loads < 1 {"}}},
	{name: "the step is kept too long", by: "TestStepper", edits: []edit{{"plan.go",
		"case lasted < 2*outlast:", "case lasted < 3*outlast:"}}},
	{name: "an operator's step does not start adaptation again", by: "TestStepperRebase", edits: []edit{{"plan.go",
		"	s.base, s.step = base, base\n", "	s.base = base\n"}}},
	{name: "a step from before the operator's is kept", by: "TestStepChanged", edits: []edit{{"refill.go",
		"		if p.base != b.stepper.base {", "		if false {"}}},

	// Eviction.
	{name: "eviction forgets the floor", by: "TestEvictKeepsTheFloor", edits: []edit{{"allocator.go",
		"	if b.floor > 0 {", "	if false {"}}},
	{name: "a tag is evicted during its refill", by: "TestEvictWaits", edits: []edit{{"evict.go",
		"return b.wake == nil && b.waiters.Len() == 0 && b.failure == nil", "return true"}}},
	{name: "a tag in use is evicted", by: "TestEvict", edits: []edit{{"evict.go",
		"		b.swept = b.taken\n", ""}}},
	{name: "idle tags are not evicted", by: "TestEvict", edits: []edit{{"evict.go",
		"			m.evict(b)\n", ""}}},
	{name: "names that are no tags stay in memory while the store is away", by: "TestUnknownTagsAreForgotten", edits: []edit{{"refill.go",
		"				a.forgetUnknown(b)\n", ""}}},
	{name: "names that are no tags stay in memory when they are refused", by: "TestOverloadLeavesNothing", edits: []edit{{"allocator.go",
		"		if unused {", "		if unused && n < 0 {"}}},

	// Reports.
	{name: "a range is not reported to the other generators", by: "TestOverlapInOrder", edits: []edit{{"refill.go",
		"	a.cfg.Push(grant.Stored)\n\n	now", "	now"}}},
	{name: "a range is reported to the other generators before its mark", by: "TestOverlapInOrder", edits: []edit{{"refill.go",
		"	a.cfg.Push(grant.Stored)\n\n	now", "	now"}, {"refill.go",
		"		a.mark(tag, grant.Last+1)\n", "		a.cfg.Push(grant.Stored)\n		a.mark(tag, grant.Last+1)\n"}}},
	{name: "a range is reported to the other generators after its event", by: "TestOverlapInOrder", edits: []edit{{"refill.go",
		"	a.cfg.Push(grant.Stored)\n\n	now", "	now"}, {"refill.go",
		"	a.recoveredLocked(b)\n	b.refilledBefore,", "	b.mu.Unlock()\n	a.cfg.Push(grant.Stored)\n	b.mu.Lock()\n	a.recoveredLocked(b)\n	b.refilledBefore,"}}},
	{name: "a range is in memory before it is reported", by: "TestOverlapInOrder", edits: []edit{
		{"refill.go", "	a.cfg.Index.note(grant.Stored, false)\n", "	b.segments = append(b.segments, Segment{Range: grant.Range, Next: grant.First})\n	a.cfg.Index.note(grant.Stored, false)\n"}}},
	{name: "a range is reported after its IDs are handed out", by: "TestReportedBeforeUse", edits: []edit{
		{"refill.go", "	a.cfg.Notify(Refilled{Tag: b.tag, Range: grant.Range, Step: b.stepper.step, Cause: cause, Elapsed: elapsed})\n", ""},
		{"refill.go", "	b.installLocked(grant.Range)\n", "	b.installLocked(grant.Range)\n	a.cfg.Notify(Refilled{Tag: b.tag, Range: grant.Range, Step: b.stepper.step, Cause: cause, Elapsed: elapsed})\n"}}},
	{name: "an alert is sent for each failure", by: "TestEpisodes", edits: []edit{{"refill.go",
		"if !b.alerts[refillFailed] && a.mayAlertLocked(b) {", "if a.mayAlertLocked(b) {"}}},
	{name: "an alert is sent for each refused request", by: "TestEpisodes", edits: []edit{{"event.go",
		"if served || b.alerts[starved] || b.strict", "if served || b.strict"}}},
	{name: "a request that was refused before the store came back raises an alert", by: "TestEpisodes", edits: []edit{{
		"event.go", "if served || b.alerts[starved]", "if served && false || b.alerts[starved]"}}},
	{name: "an alert has no end", by: "TestEpisodes", edits: []edit{{"alarms.go",
		"		if b.alerts[episode] {\n", "		if b.alerts[episode] && episode != starved {\n"}}},
	{name: "names that are no tags raise any number of alerts", by: "TestEpisodesOfUnknownTags", edits: []edit{{"alarms.go",
		" && (b.stepper.base > 0 || a.index.End(b.tag) > 0)", ""}}},
	{name: "tags that were not used yet raise no alerts", by: "TestEpisodesOfUnknownTags", edits: []edit{{"alarms.go",
		" || a.index.End(b.tag) > 0)", ")"}}},
	{name: "a tag that is dropped counts as failing", by: "TestEpisodesEndWithTheTag", edits: []edit{{"alarms.go",
		"if b.failure == nil || b.gone {", "if b.failure == nil {"},
		{"alarms.go", "	b.alerts, b.failure = alerts{}, nil\n", ""}}},
	{name: "what an operator drops still counts as in memory", by: "TestFailingAfterRaise", edits: []edit{{"reconcile.go",
		"	a.recountLocked(b)\n	b.mu.Unlock()\n	if s.Deleted {", "	b.mu.Unlock()\n	if s.Deleted {"}, {"ruled.go",
		"	a.alarms.recountLocked(b)\n}\n\n// admitWaiters", "}\n\n// admitWaiters"}}},
	{name: "what requests use up still counts as in memory", by: "TestFailing", edits: []edit{{"allocator.go",
		"		a.recountLocked(b)\n	}\n	if b.wake == nil", "	}\n	if b.wake == nil"}}},
	{name: "a locked tag is the store's failure", by: "TestFailingOfALockedRow", edits: []edit{{"alarms.go",
		" || errors.Is(err, ErrLocked) {", " {"}}},

	// The end.
	{name: "Run leaves requests waiting", by: "TestClosed", edits: []edit{{"allocator.go",
		"		b.refuseLocked(ErrClosed)\n", ""}}},
	{name: "Run leaves refills behind", by: "TestRunEndsAhead", edits: []edit{{"allocator.go",
		"	a.wg.Wait()\n", ""}}},
	{name: "requests wait after the end", by: "TestClosed", edits: []edit{{"allocator.go",
		"	case a.ctx.Err() != nil:\n		err = ErrClosed\n", ""}}},
	{name: "tags that are not used any more are loaded ahead", by: "TestAhead", edits: []edit{{"index.go",
		"e.claimed >= since.Unix() && ", ""}}},
}
