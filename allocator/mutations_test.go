//go:build mutations

package allocator_test

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// mutation is a change of the code that breaks a promise.
type mutation struct {
	name  string
	by    string // the test that finds it; default: the model
	edits []edit
}

type edit = mutate.Edit

// TestMutations demands that the model or another test finds each mutation. It checks the
// tests, not the code, and takes minutes: `make mutations`.
func TestMutations(t *testing.T) {
	runner := mutate.Runner{By: "TestModel"}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) { runner.Run(t, m.by, m.edits...) })
	}
}

var mutations = []mutation{
	// A range is what the store returned, and starts above all that was seen before the request.
	{name: "a range below what was seen is used", by: "TestRegressed", edits: []edit{{"refill.go",
		"case grant.First < seen:", "case false && grant.First < seen:"}}},
	{name: "the last ID that was seen is used again", by: "TestRegressedAtSeen", edits: []edit{{"refill.go",
		"case grant.First < seen:", "case grant.First < seen-1:"}}},
	{name: "what was seen is read after the answer", by: "TestObserve", edits: []edit{{"refill.go",
		"	grant, err := a.cfg.Store.Reserve(ctx, tag, n)\n", "	grant, err := a.cfg.Store.Reserve(ctx, tag, n)\n	seen = a.Seen(b.tag)\n"}}},
	{name: "what was seen is read once for all requests of an attempt", by: "TestSeenBeforeEachRequest", edits: []edit{
		{"refill.go", "	tag, seen := b.tag, a.Seen(b.tag)\n", "	tag, seen := b.tag, p.seen\n"},
		{"refill.go", "	start := time.Now()\n", "	start := time.Now()\n	p.seen = a.Seen(b.tag)\n"},
		{"plan.go", "	locked   bool   //", "	seen     int64\n	locked   bool   //"}}},
	{name: "the evidence is gathered after the answer", by: "TestEvidence", edits: []edit{
		{"refill.go", "	held, err := a.cfg.Evidence(ctx)\n	if err != nil {\n		return Grant{}, err\n	}\n", ""},
		{"refill.go", "	grant, err := a.cfg.Store.Reserve(ctx, tag, n)\n",
			"	grant, err := a.cfg.Store.Reserve(ctx, tag, n)\n	held, errs := a.cfg.Evidence(ctx)\n	if errs != nil {\n		return Grant{}, errs\n	}\n"}}},
	{name: "the evidence is gathered after what was seen is read", by: "TestSeenBeforeEachRequest", edits: []edit{
		{"refill.go", "	held, err := a.cfg.Evidence(ctx)\n	if err != nil {\n		return Grant{}, err\n	}\n	tag, seen := b.tag, a.Seen(b.tag)\n",
			"	tag, seen := b.tag, a.Seen(b.tag)\n	held, err := a.cfg.Evidence(ctx)\n	if err != nil {\n		return Grant{}, err\n	}\n"}}},
	{name: "evidence that cannot be had is skipped", by: "TestEvidence", edits: []edit{{"refill.go",
		"	held, err := a.cfg.Evidence(ctx)\n	if err != nil {\n		return Grant{}, err\n	}\n",
		"	held, err := a.cfg.Evidence(ctx)\n	if err != nil {\n		held = func() bool { return true }\n	}\n"}}},
	{name: "evidence that did not hold counts", by: "TestEvidence", edits: []edit{{"refill.go",
		"case !held():", "case false && held():"}}},
	{name: "the range of an ambiguous answer is used", by: "TestLostAnswers", edits: []edit{{"refill.go",
		"	case err != nil:\n		return Grant{}, err\n	case b.discarded(p):", "	case err != nil && grant.First == 0:\n		return Grant{}, err\n	case b.discarded(p):"}}},
	{name: "an invalid range is used", by: "TestNonsense", edits: []edit{{"refill.go",
		"case grant.First < 1 || grant.Last < grant.First || grant.Step < 1:", "case false:"}}},
	{name: "a range of step 0 is used", by: "TestNonsense", edits: []edit{{"refill.go",
		" || grant.Step < 1:", ":"}}},
	{name: "a conflict with another generator is a failure", by: "TestOthersAhead", edits: []edit{{"refill.go",
		"case !errors.Is(err, ErrConflict):", "case true:"}}},
	{name: "the last IDs of a tag are not reserved", by: "TestExhausted", edits: []edit{{"refill.go",
		"case errors.Is(err, ErrExhausted) && n > 1:", "case false:"}}},

	// Marks.
	{name: "a range is not marked", by: "TestRegressedRestart", edits: []edit{{"refill.go",
		"	a.mark(tag, grant.Last+1)\n", ""}}},
	{name: "the mark of a range is one too low", by: "TestRegressed", edits: []edit{{"refill.go",
		"a.mark(tag, grant.Last+1)", "a.mark(tag, grant.Last)"}}},
	{name: "a range is used before its mark is written", by: "TestMarkIsWrittenBeforeItsRange", edits: []edit{{"refill.go",
		"	a.mark(tag, grant.Last+1)\n", "	go a.mark(tag, grant.Last+1)\n"}}},
	{name: "a mark is kept in memory only", by: "TestMarks", edits: []edit{{"marks.go",
		"	m.unwritten[tag] = max(m.unwritten[tag], end)\n	m.mu.Unlock()", "	m.mu.Unlock()"}}},
	{name: "a lower mark replaces the own one", by: "TestMarks", edits: []edit{{"marks.go",
		"	m.ends[tag] = max(m.ends[tag], end)\n	if m.disk", "	m.ends[tag] = end\n	if m.disk"}}},
	{name: "a lower report replaces a mark", by: "TestMarks", edits: []edit{{"marks.go",
		"	m.ends[tag] = max(m.ends[tag], end)\n}", "	m.ends[tag] = end\n}"}}},
	{name: "the last mark in the file counts, not the highest", by: "TestMarks", edits: []edit{{"marks.go",
		"numbers[tag] = max(numbers[tag], number)", "numbers[tag] = number"}}},
	{name: "a damaged mark counts", by: "TestMarksDamaged", edits: []edit{{"marks.go",
		" || uint32(want) != crc32.ChecksumIEEE(text)", " || want == 1<<40"}}},
	{name: "a torn line spoils the next", by: "TestMarksFullDisk", edits: []edit{{"marks.go",
		"	if m.torn {", "	if false {"}}},
	{name: "marks that could not be written are forgotten", by: "TestFullDiskIsMadeUpFor", edits: []edit{{"marks.go",
		"			m.unwritten[tag] = max(m.unwritten[tag], end)\n		}", "			_, _ = tag, end\n		}"}}},
	{name: "marks are added to a file that was replaced", by: "TestMarksCompaction", edits: []edit{{"marks.go",
		"	m.file = f\n	if failed", "	if m.file == nil {\n		m.file = f\n	}\n	if failed"},
		{"marks.go", "		m.file.Close()\n", ""}}},
	{name: "a rewrite keeps the present marks only", by: "TestMarksCompaction", edits: []edit{{"marks.go",
		"	failed := writeLines(m.path, ends)", "	failed := writeLines(m.path, m.unwritten)"}}},
	{name: "the file of the marks grows for ever", by: "TestMarksCompaction", edits: []edit{{"marks.go",
		"if m.lines > 2*tags+slackLines {", "if false {"}}},
	{name: "a file that cannot be read is an empty one", by: "TestMarksUnwritable", edits: []edit{
		{"marks.go", "		return numbers, err\n", "		return numbers, nil\n"}}},
	{name: "refills wait for a disk that hangs", by: "TestDiskHangs", edits: []edit{{"marks.go",
		"return m.disk.Run(m.write)", "return m.disk.RunWithin(time.Hour, m.write)"}}},
	{name: "a disk that hangs is tried by every refill", by: "TestRunner", edits: []edit{{"disk/runner.go",
		"time.Since(*since) >= r.wait", "false"}}},
	{name: "two disk operations at a time", by: "TestRunner", edits: []edit{{"disk/runner.go",
		"		<-r.turn\n		ended <- err", "		ended <- err"},
		{"disk/runner.go", "	now := time.Now()\n", "	<-r.turn\n	now := time.Now()\n"}}},

	// One refill of a tag at a time, bounded for all tags.
	{name: "two refills of a tag at a time", by: "TestOneRefillAtATime", edits: []edit{{"refill.go",
		"if b.loading || a.ctx", "if a.ctx"}}},
	{name: "a refill and a load ahead at a time", by: "TestAheadOnlyWhatIsEmpty", edits: []edit{{"recent.go",
		"b.gone || b.loading || ", "b.gone || "}}},
	{name: "a tag that has IDs is loaded ahead", by: "TestAheadOnlyWhatIsEmpty", edits: []edit{{"recent.go",
		" || !b.refilled.IsZero()", ""}}},
	{name: "a refill that ends stays the owner", by: "TestPrefetch", edits: []edit{{"buffer.go",
		"b.loading, b.wake = false, nil", "b.wake = nil"}}},
	{name: "refills are not bounded", by: "TestRefillsAreBounded", edits: []edit{{"allocator.go",
		"make(chan struct{}, maxRefills)", "make(chan struct{}, 100*maxRefills)"}}},
	{name: "refills of locked tags are not bounded", by: "TestLockedTags", edits: []edit{{"refill.go",
		"	if p.locked {", "	if false {"}}},
	{name: "loads ahead are not bounded", by: "TestRecentIsLoadedAhead", edits: []edit{{"recent.go",
		"make(chan struct{}, aheadAtOnce)", "make(chan struct{}, 100)"}}},
	{name: "a store that is away is asked for every recent tag", by: "TestAheadStoreAway", edits: []edit{{"recent.go",
		" || failures.Load() >= aheadFailures", ""}}},
	{name: "pauses between attempts do not grow", by: "TestPauses", edits: []edit{{"refill.go",
		"firstPause<<min(attempt, 10)", "firstPause"}}},
	{name: "pauses grow over successes", by: "TestPausesBeginAnew", edits: []edit{{"refill.go",
		"			attempt = 0\n", ""}}},
	{name: "a failed refill is not retried without a request", by: "TestUnavailable", edits: []edit{{"plan.go",
		"b.exhausted || b.failure == nil && !b.nextDueLocked()", "b.exhausted || !b.nextDueLocked()"}}},

	// Floors and deletions.
	{name: "a floor is ignored", by: "TestMaxIDMoved", edits: []edit{{"buffer.go",
		"	b.floor = floor\n", ""}}},
	{name: "a floor spares what is in memory", by: "TestMaxIDMoved", edits: []edit{{"buffer.go",
		"	b.floor = floor\n	b.trimLocked()\n", "	b.floor = floor\n"}}},
	{name: "a floor spares what waiters hold", by: "TestMaxIDMovedUnderBatch", edits: []edit{{"buffer.go",
		"	b.trimLocked()\n	b.emptyWaitersLocked()\n", "	b.trimLocked()\n"}}},
	{name: "a floor spares the refill under way", by: "TestMaxIDMovedDuringRefill", edits: []edit{{"buffer.go",
		"Next: r.First})\n	b.trimLocked()\n", "Next: r.First})\n	b.left += r.Len()\n"}}},
	{name: "a lower floor replaces a higher one", by: "TestMaxIDMovedDuringRefill", edits: []edit{{"buffer.go",
		"	if floor <= b.floor {", "	if floor == b.floor || floor == 0 {"}}},
	{name: "a floor is off by one", by: "TestMaxIDMoved", edits: []edit{{"buffer.go",
		"s.Next = max(s.Next, b.floor)", "s.Next = max(s.Next, b.floor-1)"}}},
	{name: "a floor of a tag that is not in memory is ignored", by: "TestFloorOfATagThatIsNotInMemory", edits: []edit{{"allocator.go",
		"	if floor > 0 {\n		a.cfg.Marks.Observe(tag, floor) //", "	if b := a.buffers[tag]; floor > 0 && b != nil {\n		a.cfg.Marks.Observe(tag, floor) //"}}},
	{name: "the floor of a tombstone is ignored", by: "TestFloorOfATagThatIsNotInMemory", edits: []edit{{"tag.go",
		"	if t.Deleted {\n		return t.MaxID\n	}\n", ""}}},
	{name: "what is in memory of a vanished tag is used", by: "TestVanished", edits: []edit{{"allocator.go",
		"		b.discardLocked()\n", ""}}},
	{name: "the range under way of a vanished tag is used", by: "TestVanishedDuringRefill", edits: []edit{
		{"refill.go", "	case b.discarded(p):", "	case false:"},
		{"refill.go", "	if b.discards != p.discards {", "	if false {"}}},
	{name: "the range under way of a vanished tag is marked", by: "TestVanishedDuringRefill", edits: []edit{
		{"refill.go", "	case b.discarded(p):", "	case false:"}}},
	{name: "a range is used that was discarded while its mark was written", by: "TestVanishedWhileMarkIsWritten", edits: []edit{
		{"refill.go", "	if b.discards != p.discards {", "	if false {"}}},
	{name: "what waiters hold of a vanished tag is used", by: "TestVanishedUnderBatch", edits: []edit{{"buffer.go",
		"	b.segments, b.left = nil, 0\n	b.emptyWaitersLocked()\n", "	b.segments, b.left = nil, 0\n"}}},
	{name: "a deleted tag stays in memory", by: "TestDeleted", edits: []edit{{"allocator.go",
		"	if tag.Deleted {\n		a.forget(b)\n	}\n", ""}}},
	{name: "a deleted tag is loaded ahead", by: "TestRecentDeleted", edits: []edit{{"allocator.go",
		"		a.recent.forget(tag.Name)\n", ""}}},
	{name: "a buffer that is gone takes the tag's new one with it", by: "TestForgetGone", edits: []edit{{"allocator.go",
		"if b.gone || !condition() {", "if !condition() {"}}},
	{name: "max_id moves backwards", by: "TestWith", edits: []edit{{"tag.go",
		"*c.MaxID < at {", "*c.MaxID < 1 {"}}},
	{name: "max_id moves below the floor", by: "TestWith", edits: []edit{{"tag.go",
		"at := max(t.MaxID, t.Floor);", "at := t.MaxID;"}}},
	{name: "an operator's max_id is no floor", by: "TestWith", edits: []edit{{"tag.go",
		"t.MaxID, t.Floor = *c.MaxID, *c.MaxID", "t.MaxID = *c.MaxID"}}},

	// A store that went backwards.
	{name: "a regressed tag is served when its max_id has grown", by: "TestRegressed", edits: []edit{{"buffer.go",
		"min(tag.Floor, tag.MaxID) >=", "tag.MaxID >="}}},
	{name: "a regressed tag is served by an operator's word from before", by: "TestRegressed", edits: []edit{{"buffer.go",
		"min(tag.Floor, tag.MaxID) >=", "tag.Floor >="}}},
	{name: "a regressed tag is served one below what was seen", by: "TestRegressed", edits: []edit{{"buffer.go",
		"tag.MaxID) >= b.regressed.Seen {", "tag.MaxID) >= b.regressed.Seen-1 {"}}},
	{name: "a regressed tag serves what it reserved before the floor", by: "TestRegressedMemory", edits: []edit{{"refill.go",
		"			b.raiseFloorLocked(tag.Floor)\n			a.recountLocked(b)\n", ""}}},
	{name: "reservations of a regressed tag go on", by: "TestRegressed", edits: []edit{{"refill.go",
		"			a.awaitOperator(b, regressed)\n", "			a.failed(b, regressed, time.Second)\n			pause(a.ctx, time.Second, b.wake)\n"}}},
	{name: "requests wait for a regressed tag", by: "TestRegressed", edits: []edit{{"allocator.go",
		"	case b.regressed != nil:\n		err = b.regressed\n", ""}}},
	{name: "waiting requests do not learn that a tag is regressed", by: "TestObserve", edits: []edit{{"refill.go",
		"	b.refuseLocked(regressed)\n", ""}}},
	{name: "the operator's word is not noticed where the watch is blind", by: "TestRegressed", edits: []edit{{"refill.go",
		"		tag, err := a.get(b.tag) //", "		tag, err := Tag{}, error(nil) //"}}},

	// Memory.
	{name: "an ID is handed out twice", by: "TestUniqueAcrossAllocators", edits: []edit{{"buffer.go",
		"		s.Next += n\n", "		s.Next += n - 1\n"}}},
	{name: "an ID too many is handed out", by: "TestUniqueAcrossAllocators", edits: []edit{{"buffer.go",
		"Range{s.Next, s.Next + n - 1})", "Range{s.Next, s.Next + n})"}}},
	{name: "a used-up segment stays", by: "TestBatchLargerThanMemory", edits: []edit{{"buffer.go",
		"n >= rest {", "n > rest {"}}},
	{name: "ranges are joined across a gap", by: "TestTakeAcrossSegments", edits: []edit{{"store.go",
		"ranges[n-1].Last+1 == r.First", "ranges[n-1].Last < r.First"}}},
	{name: "a buffer that is gone hands out IDs", by: "TestGoneIsLookedUpAgain", edits: []edit{{"allocator.go",
		"		if b.gone {\n", "		if false {\n"}}},
	{name: "the next segment is loaded late", by: "TestPrefetch", edits: []edit{{"plan.go",
		"return used >= size/10+min(size%10, 1)", "return used > size/10+min(size%10, 1)"}}},
	{name: "a third segment is loaded", by: "TestPrefetch", edits: []edit{
		{"allocator.go", "len(b.segments) < 2 && ", ""},
		{"plan.go", "	default:\n		return false\n	}", "	default:\n		return len(b.segments) < 3\n	}"}}},

	// Requests that wait.
	{name: "a waiter is settled twice", edits: []edit{{"waiter.go",
		"	if w.queued { //", "	if true { //"}}},
	{name: "a waiter is refused and keeps IDs", edits: []edit{{"buffer.go",
		"		w.ranges = nil\n	}\n	w.allocator", "	}\n	w.allocator"}}},
	{name: "a waiter stays in the queue when it gives up", by: "TestCancelledWaiter", edits: []edit{{"buffer.go",
		"	b.waiters.remove(w)\n	b.missing -= w.missing\n", "	if err == nil {\n		b.waiters.remove(w)\n	}\n	b.missing -= w.missing\n"}}},
	{name: "a waiter gets its IDs again with the next range", by: "TestBatchKeepsItsShare", edits: []edit{{"buffer.go",
		"		w.missing -= n\n		b.missing -= n\n", "		b.missing -= n\n		if n == w.n {\n			w.missing = 0\n		}\n"}}},
	{name: "what a waiter lacks stays wanted when it gives up", by: "TestCancelledWaiter", edits: []edit{{"buffer.go",
		"	b.missing -= w.missing\n	w.err = err", "	w.err = err"}}},
	{name: "waiters are served in reverse", by: "TestOverloaded", edits: []edit{
		{"buffer.go", "for w := b.waiters.first; w != nil && b.left > 0; w = b.waiters.first {", "for w := b.waiters.last; w != nil && b.left > 0; w = b.waiters.last {"}}},
	{name: "a waiter waits for ever", by: "TestTimedOut", edits: []edit{{"waiter.go",
		"	case <-timer.C:\n		err = ErrTimedOut\n", ""}}},
	{name: "requests that wait are not bounded", by: "TestOverloaded", edits: []edit{{"allocator.go",
		"case a.waiting.Add(1) > a.cfg.MaxWaiting:", "case a.waiting.Add(1) < 0:"}}},
	{name: "one request too many waits", by: "TestOverloaded", edits: []edit{{"allocator.go",
		"case a.waiting.Add(1) > a.cfg.MaxWaiting:", "case a.waiting.Add(1) > a.cfg.MaxWaiting+1:"}}},
	{name: "a refused request counts as waiting", by: "TestOverloaded", edits: []edit{{"allocator.go",
		"		a.waiting.Add(-1)\n		err", "		err"}}},
	{name: "a settled request counts as waiting", by: "TestWaits", edits: []edit{{"buffer.go",
		"	w.allocator.waiting.Add(-1) //", "	//"}}},
	{name: "requests wait although the store has failed for long", by: "TestUnavailable", edits: []edit{{"allocator.go",
		"case b.failure != nil && now.Sub(b.failure.since) >= a.cfg.MaxWait:", "case false:"}}},

	// What is reserved.
	{name: "a batch of 0 is served", by: "TestCount", edits: []edit{{"allocator.go",
		"	if n < 1 {", "	if n < 0 {"}}},
	{name: "a batch above the limit is served", by: "TestCount", edits: []edit{{"allocator.go",
		"	if n > a.cfg.MaxBatch {", "	if n > a.cfg.MaxBatch+1 {"}}},
	{name: "a batch ignores what is in memory", by: "TestBatchLargerThanMemory", edits: []edit{{"plan.go",
		"p.n = b.missing - b.left", "p.n = b.missing"}}},
	{name: "less than a step is reserved", by: "TestStepOverTime", edits: []edit{{"plan.go",
		"p.n = max(p.n, p.step, 1)", "p.n = max(p.n, 1)"}}},
	{name: "a batch counts as a segment", by: "TestBatchesDoNotAdapt", edits: []edit{{"refill.go",
		"	if cause != CauseBatch {", "	if true {"}}},
	{name: "the step triples", by: "TestStepper", edits: []edit{{"plan.go",
		"return s.step * 2", "return s.step * 3"}}},
	{name: "the step grows beyond its limit", by: "TestStepper", edits: []edit{{"plan.go",
		"if s.step > maxStep/2 {", "if false {"}}},
	{name: "the step falls below the tag's", by: "TestStepper", edits: []edit{{"plan.go",
		"return max(s.step/2, s.base)", "return s.step / 2"},
		{"plan.go", "	s.step = max(step, s.base)", "	s.step = step"}}},
	{name: "the step doubles with the second segment", by: "TestStepper", edits: []edit{{"plan.go",
		"if s.loads < 2 {", "if s.loads < 1 {"}}},
	{name: "the step is kept too long", by: "TestStepper", edits: []edit{{"plan.go",
		"case lasted < longSegment:", "case lasted < 2*longSegment:"}}},
	{name: "an operator's step does not start adaptation again", by: "TestStepperRebase", edits: []edit{{"plan.go",
		"	s.base, s.step = base, base\n", "	s.base = base\n"}}},
	{name: "a step from before the operator's is kept", by: "TestStepChanged", edits: []edit{{"refill.go",
		"		if p.base != b.stepper.base {", "		if false {"}}},

	// Eviction.
	{name: "eviction forgets the mark", by: "TestEvictKeepsTheCheck", edits: []edit{{"recent.go",
		"		return true\n	})", "		delete(a.cfg.Marks.ends, b.tag)\n		return true\n	})"}}},
	{name: "eviction forgets the floor", by: "TestEvictKeepsTheFloor", edits: []edit{{"recent.go",
		"		if b.floor > 0 {", "		if false {"}}},
	{name: "a tag is evicted during its refill", by: "TestEvictWaits", edits: []edit{{"recent.go",
		"if b.loading || b.waiters.n > 0 || b.regressed != nil || b.failure != nil {", "if false {"}}},
	{name: "a tag in use is evicted", by: "TestEvict", edits: []edit{{"recent.go",
		"			b.idle = 0\n", ""}}},
	{name: "idle tags are not evicted", by: "TestEvict", edits: []edit{{"recent.go",
		"			a.evict(b)\n", ""}}},
	{name: "names that are no tags stay in memory while the store is away", by: "TestUnknownTagsAreForgotten", edits: []edit{{"refill.go",
		"				a.forgetUnknown(b)\n", ""}}},
	{name: "names that are no tags stay in memory when they are refused", by: "TestOverloadLeavesNothing", edits: []edit{{"allocator.go",
		"		if unused {", "		if unused && n < 0 {"}}},

	// Reports.
	{name: "a range is reported after its IDs are handed out", by: "TestReportedBeforeUse", edits: []edit{
		{"refill.go", "	a.cfg.Notify(Refilled{Tag: b.tag, Range: grant.Range, Step: b.stepper.step, Cause: cause, Elapsed: elapsed})\n", ""},
		{"refill.go", "	b.installLocked(grant.Range)\n", "	b.installLocked(grant.Range)\n	a.cfg.Notify(Refilled{Tag: b.tag, Range: grant.Range, Step: b.stepper.step, Cause: cause, Elapsed: elapsed})\n"}}},
	{name: "a range is reported before it is checked", by: "TestReportedBeforeUse", edits: []edit{
		{"refill.go", "	a.cfg.Notify(Refilled{Tag: b.tag, Range: grant.Range, Step: b.stepper.step, Cause: cause, Elapsed: elapsed})\n", ""},
		{"refill.go", "	switch {\n	case err != nil:\n		return Grant{}, err\n	case b.discarded", "	if err == nil {\n		a.cfg.Notify(Refilled{Tag: tag, Range: grant.Range})\n	}\n	switch {\n	case err != nil:\n		return Grant{}, err\n	case b.discarded"}}},
	{name: "an alert is sent for each failure", by: "TestEpisodes", edits: []edit{{"refill.go",
		"if !b.failure.alerted && a.mayAlertLocked(b) {", "if a.mayAlertLocked(b) {"}}},
	{name: "an alert is sent for each refused request", by: "TestEpisodes", edits: []edit{{"event.go",
		"if !b.starved && a.mayAlertLocked(b) {", "if a.mayAlertLocked(b) {"}}},
	{name: "an alert has no end", by: "TestEpisodes", edits: []edit{{"event.go",
		"	b.failure = nil\n	if b.starved {", "	b.failure = nil\n	if false {"}}},
	{name: "names that are no tags raise any number of alerts", by: "TestEpisodesOfUnknownTags", edits: []edit{{"event.go",
		"if a.unknownAlerts.Add(1) > maxUnknownAlerts {", "if a.unknownAlerts.Add(1) < 0 {"}}},
	{name: "the alerts of such names are never over", by: "TestEpisodesOfUnknownTags", edits: []edit{{"event.go",
		"		a.unknownAlerts.Add(-1)\n	}\n	a.recount", "	}\n	a.recount"}}},
	{name: "a tag that is dropped counts as failing", by: "TestEpisodesEndWithTheTag", edits: []edit{{"failing.go",
		"if b.failure == nil || b.gone {", "if b.failure == nil {"},
		{"event.go", "	b.failure = nil\n", ""}}},
	{name: "what an operator drops still counts as in memory", by: "TestFailingAfterRaise", edits: []edit{{"allocator.go",
		"	if b := a.raise(tag, floor); b != nil {\n		a.recountLocked(b)\n", "	if b := a.raise(tag, floor); b != nil {\n"}}},
	{name: "what requests use up still counts as in memory", by: "TestFailing", edits: []edit{{"allocator.go",
		"			a.recountLocked(b)\n		}\n		if !b.loading", "		}\n		if !b.loading"}}},
	{name: "a locked tag is the store's failure", by: "TestFailingOfALockedTable", edits: []edit{{"failing.go",
		"t.locked > 0 && t.refills == a.refills.Load()", "t.locked > 0"}}},
	{name: "a locked table is no failure", by: "TestFailingOfALockedTable", edits: []edit{{"failing.go",
		"		t.locked++\n", ""}}},

	// The end.
	{name: "Run leaves requests waiting", by: "TestClosed", edits: []edit{{"allocator.go",
		"		b.refuseLocked(ErrClosed)\n", ""}}},
	{name: "Run leaves refills behind", by: "TestRunEndsAhead", edits: []edit{{"allocator.go",
		"	a.wg.Wait()\n", ""}}},
	{name: "requests wait after the end", by: "TestClosed", edits: []edit{{"allocator.go",
		"	case a.ctx.Err() != nil:\n		err = ErrClosed\n", ""}}},
	{name: "the recent tags are not saved", by: "TestRecentIsKept", edits: []edit{{"recent.go",
		"		r.used[tag] = hour\n		r.changed = true\n	}\n}", "		r.used[tag] = hour\n	}\n}"}}},
	{name: "tags that are not used any more are loaded ahead", by: "TestRecentEnds", edits: []edit{{"recent.go",
		"		case at < oldest:", "		case at < oldest-1<<40:"}}},
}
