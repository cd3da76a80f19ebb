//go:build mutations

package snowflake_test

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// mutation is a change of the code that breaks a promise.
type mutation struct {
	name  string
	by    string // the test that finds it, if the simulation would take too long
	edits []edit
}

type edit = mutate.Edit

// TestMutations demands that the simulation, in more worlds than usual, or another test finds
// each mutation. It checks the tests, not the code, and takes minutes: `make mutations`.
func TestMutations(t *testing.T) {
	runner := mutate.Runner{
		By:   "TestSimulation",
		Says: `(?ms)^\s+simulation_test\.go:\d+: (.{1,1000}?\n\s*in world \d+)`,
		Env:  []string{"LEAF_TEST_WORLDS=20000"},
	}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) { runner.Run(t, m.by, m.edits...) })
	}
}

// TestMutationsOfRegistries demands that the conformance suite finds each registry by which two holders could have the
// same worker and time. What it breaks is the registry in memory.
func TestMutationsOfRegistries(t *testing.T) {
	runner := mutate.Runner{By: "TestMemory", Says: `(?m)^\s+(cases|suite)\.go:\d+: (.*)`}
	const (
		file  = "snowflaketest/memory.go"
		put   = "	return m.putLocked(r).Version, nil"
		check = "!ok || e.Version != version {"
		pause = "	m.mu.Unlock()\n	time.Sleep(time.Millisecond)\n	m.mu.Lock()\n"
		full  = "	return snowflake.Entry{}, snowflake.ErrFull"
	)
	imports := edit{file, "	\"sync\"\n", "	\"sync\"\n	\"time\"\n"}
	for name, edits := range map[string][]edit{
		"Put ignores the version":   {{file, "if e, ok := m.entries[r.Worker]; " + check, "if _, ok := m.entries[r.Worker]; !ok {"}},
		"Put ignores version 0":     {{file, check, "!ok || version != 0 && e.Version != version {"}},
		"Put takes newer versions":  {{file, check, "!ok || e.Version > version {"}},
		"Put makes what is missing": {{file, check, "ok && e.Version != version {"}},
		"a conflict is written": {{file, "		return 0, snowflake.ErrConflict",
			"		if ok {\n			m.putLocked(r)\n		}\n		return 0, snowflake.ErrConflict"}},
		"Put reads, then writes":         {{file, put, pause + put}, imports},
		"Put removes, then adds":         {{file, put, "	delete(m.entries, r.Worker)\n" + pause + put}, imports},
		"Put moves the neighbour":        {{file, put, "	if e, ok := m.entries[r.Worker+1]; ok {\n		m.putLocked(e.Record)\n	}\n" + put}},
		"Put keeps the holder":           {{file, put, "	r.Incarnation = m.entries[r.Worker].Incarnation\n" + put}},
		"Add overwrites":                 {{file, "if _, ok := m.entries[r.Worker]; !ok && c.Allows(r.Worker) {", "if c.Allows(r.Worker) {"}},
		"Add overwrites when it is full": {{file, full, "	r.Worker = c.Last\n	m.putLocked(r)\n" + full}},
		"Add ignores the choice":         {{file, "!ok && c.Allows(r.Worker) {", "!ok {"}},
		"Add goes above the last": {{file, "r.Worker <= c.Last; r.Worker++ {\n",
			"r.Worker <= c.Last+1; r.Worker++ {\n		c.Last = max(c.Last, r.Worker)\n"}},
		"Add has no version":     {{file, "return m.putLocked(r), nil", "return snowflake.Entry{Record: m.putLocked(r).Record}, nil"}},
		"the high bits are lost": {{file, "	m.version++\n", "	m.version++\n	r.Worker %= 1024\n"}},
		"List is in any order":   {{file, "cmp.Compare(x.Worker, y.Worker)", "cmp.Compare(x.Version, y.Version)"}},
		"a backup is not seen":   {{file, "	m.entries = maps.Clone(snapshot)\n", ""}},
		"contexts are ignored":   {{file, "	if err := ctx.Err(); err != nil {\n		return 0, err\n	}\n", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			soon := edit{"snowflaketest/suite.go", "var timeout = 30 * time.Second", "var timeout = time.Second"}
			runner.Run(t, "", append(edits, soon)...)
		})
	}
}

var mutations = []mutation{
	// The reservation.
	{name: "the end of a reservation is issued too", by: "TestRegistryAway", edits: []edit{{"issue.go",
		"case t >= w.ReservedUntil:", "case t > w.ReservedUntil:"}}},
	{name: "a successor begins anywhere", edits: []edit{{"worker.go",
		"max(s.Ceiling, e.ReservedUntil)", "s.Ceiling"}}},
	{name: "a silent holder's worker is taken over from now on", edits: []edit{
		{"decide.go", "if e.ReservedUntil <= s.t &&", "if e.Reported <= s.t-10_000 &&"},
		{"worker.go", "max(s.Ceiling, e.ReservedUntil)", "max(s.Ceiling, t)"}}},
	{name: "a reservation is lowered when the clock goes back", edits: []edit{{"worker.go",
		"max(reserved, t+ahead)", "t+ahead"}}},
	{name: "a lost answer counts as success", edits: []edit{{"worker.go",
		"	case err == nil:\n		g.confirmedLocked", "	default:\n		g.confirmedLocked"}}},
	{name: "a conflict counts as success", edits: []edit{{"worker.go",
		"	case errors.Is(err, ErrConflict): // by", "	case false: // by"}, {"worker.go",
		"	case err == nil:\n		g.confirmedLocked", "	case err == nil || errors.Is(err, ErrConflict):\n		g.confirmedLocked"}}},
	{name: "a lost answer of a claim counts as success", edits: []edit{{"worker.go",
		"next, e.Version); err != nil {\n		return fmt.Errorf(\"reserving worker",
		"next, e.Version); errors.Is(err, ErrConflict) {\n		return fmt.Errorf(\"reserving worker"}}},

	// The incarnation.
	{name: "the own record is known by its worker", edits: []edit{{"decide.go",
		"e.Incarnation == s.saved.Incarnation || e.Incarnation == s.saved.Pending", "s.saved.Worker >= 0"}}},
	{name: "the own record is known by its node", edits: []edit{{"decide.go",
		"e.Incarnation == s.saved.Incarnation || e.Incarnation == s.saved.Pending", "e.Node == s.saved.Node"}}},
	{name: "a holder does not check the incarnation", edits: []edit{{"decide.go",
		"written := e", "written := e.Worker == s.held.Worker && s.held.Incarnation != \"\" || e"}, {"decide.go",
		"case has && own.Incarnation == s.held.Incarnation:", "case has && s.held.Incarnation != \"\":"}}},
	{name: "a lost worker is kept", edits: []edit{{"worker.go",
		"	g.worker.held = nil\n", ""}}},
	{name: "a copied folder is not noticed", edits: []edit{{"run.go",
		"Place: s.Place, Node: s.Node})", "Place: want.Place, Node: s.Node})"}}},

	// The file.
	{name: "the file is not synced", edits: []edit{{"file.go",
		"	if err := f.run(f.disk.Sync); err != nil {\n		return err\n	}\n", ""}}},
	{name: "one slot is written where two are needed", edits: []edit{{"file.go",
		"slots = 2", "slots = 1"}}},
	{name: "a slot that is left counts as it is", edits: []edit{{"file.go",
		"math.MaxInt64-slack) + slack", "math.MaxInt64-slack)"}}},
	{name: "the ceilings of the slots may differ by anything", edits: []edit{{"file.go",
		"grown < 0 || grown > slack", "grown < 0"}}},
	{name: "the ceiling is raised in memory first", edits: []edit{{"ceiling.go",
		"	s.Ceiling = want\n", "	s.Ceiling, w.ceiling = want, want\n"}}},
	{name: "the ceiling is raised though it could not be saved", edits: []edit{{"ceiling.go",
		"if err == nil && g.worker.held == w {", "if g.worker.held == w {"}}},
	{name: "the ceiling is not heeded", edits: []edit{{"issue.go",
		"if t >= g.worker.held.ceiling {", "if false {"}}},
	{name: "a restart begins anywhere", edits: []edit{{"worker.go",
		"floor: g.cfg.Layout.UnitFrom(s.Ceiling), ", ""}}},

	{name: "the first write after a start overwrites what counts", by: "TestFileStart", edits: []edit{{"file.go",
		"f.writes, f.newest, f.saved, f.ok = s.Write, int64(i), s.Saved, true", "f.writes, f.saved, f.ok = s.Write, s.Saved, true"}}},
	{name: "the first write after a start is of one slot", by: "TestFileStart", edits: []edit{{"file.go",
		"newest: 1, apart: true}", "newest: 1}"}}},
	{name: "a lost worker comes back from the file", edits: []edit{{"worker.go",
		"	s.forget()\n	g.mu.Unlock()\n	return g.write()", "	g.mu.Unlock()\n	return g.write()"}}},
	{name: "the next worker begins in the last one's millisecond", by: "TestWorkerChangesWithinMillisecond", edits: []edit{{"worker.go",
		"min(s.Ceiling, g.seq.ms+1)", "min(s.Ceiling, g.seq.ms)"}}},

	{name: "a checksum is not checked", by: "TestFileFaults", edits: []edit{{"file.go",
		"string(data[:textFrom]) != head(data)", "string(data[:len(magic)]) != magic"}}},
	{name: "the older slot counts", by: "TestFileFaults", edits: []edit{{"file.go",
		"if s.Write > f.writes {", "if !f.ok || s.Write < f.writes {"}}},
	{name: "a start does not sync what a killed process wrote", by: "TestFileOfAKilledProcess", edits: []edit{{"file.go",
		"	if err := run(d.Sync); err != nil {\n		return nil, fmt.Errorf(\"syncing the worker's file: %w\", err)\n	}\n", ""}}},
	{name: "a file that cannot be read is a new one", by: "TestFileUnreadable", edits: []edit{{"file.go",
		"case valid == 0 && unread != nil:", "case false:"}}},
	{name: "a slot that cannot be read is another process's", by: "TestFileUnreadable", edits: []edit{{"file.go",
		"if err != nil || known == nil || bytes.Equal(data, known) {", "if err != nil || bytes.Equal(data, known) {"}}},
	{name: "a ceiling at the end of time wraps", by: "TestFileCeilingAtTheLimit", edits: []edit{{"file.go",
		"min(f.saved.Ceiling, math.MaxInt64-slack) + slack", "min(f.saved.Ceiling, math.MaxInt64) + slack"}}},
	{name: "a write that failed counts as saved", by: "TestFileFaults", edits: []edit{{"file.go",
		"	slots := 1\n	if f.apart", "	f.saved, f.ok = s, true\n	slots := 1\n	if f.apart"}}},
	{name: "one slot is written after a failure", by: "TestFileStart", edits: []edit{{"file.go",
		"	f.apart = true\n	f.writes++", "	f.writes++"}}},
	{name: "a state that cannot be read again is written", by: "TestFileRefuses", edits: []edit{{"file.go",
		"!ok || again != next {", "!ok && again != next && again == next {"}}},
	{name: "a new file has no room for its slots", by: "TestFileFullDisk", edits: []edit{{"file.go",
		"size < 2*slotSize {", "size < 0 {"}}},
	{name: "a disk that hangs holds up a stop", by: "TestDiskHangs", edits: []edit{{"file.go",
		"	diskWait = 5 * time.Second", "	diskWait = 5 * time.Hour"}}},
	{name: "the ceiling is raised when it is met", by: "TestDiskSlow", edits: []edit{{"ceiling.go",
		"ceiling-t > ceilingAhead/2", "ceiling > t"}}},
	{name: "a folder that is renamed is another one", by: "TestOf", edits: []edit{{"place/place.go",
		"fmt.Sprintf(\"inode:%d\", inode)", "fmt.Sprint(lock, inode)"}}},
	{name: "a copy of a folder is the folder", by: "TestOf", edits: []edit{{"place/place.go",
		"if born != \"\" {", "if born == \"-\" {"}, {"place/place.go", "inode)\n", "inode-inode)\n"}}},

	// Standing still.
	{name: "a standstill is not noticed", edits: []edit{{"standstill.go",
		"if long > standsStill {", "if false {"}}},
	{name: "a long time before Run is a standstill", by: "TestRegistryHangs", edits: []edit{{"run.go",
		"	g.standstill = standstill{last: g.cfg.Clock()} //", "	//"}}},
	{name: "a confirmation that began before the standstill counts", by: "TestStandstillAmidReport", edits: []edit{{"standstill.go",
		"s.confirmed < times {\n		s.confirmed = times\n", "s.confirmed < s.times {\n		s.confirmed = s.times\n"}}},
	{name: "a machine that sleeps is not noticed", by: "TestStandstill", edits: []edit{{"standstill.go",
		"max(r.Mono-s.last.Mono, r.Wall-s.last.Wall)", "r.Mono-s.last.Mono"}}},
	{name: "a stop after a standstill writes the file", by: "TestStandstillAndRegistryAway", edits: []edit{{"worker.go",
		"	if g.standstill.doubtful() { // another process may have the worker", "	if false { // another process may have the worker"}}},
	{name: "the file is written after a standstill", by: "TestStandstillAndRegistryAway", edits: []edit{{"ceiling.go",
		"|| g.standstill.doubtful() { // another", "{ // another"}}},
	{name: "a generator goes on beside another process", by: "TestNotAlone", edits: []edit{{"run.go",
		"return errors.Is(err, ErrNotAlone) ||\n		errors.Is(err, ErrRefused)", "return errors.Is(err, ErrRefused)"}}},
	{name: "another process in the file is not noticed", by: "TestFileNotAlone", edits: []edit{{"file.go",
		"	if err := f.checkAlone(); err != nil {\n		return err\n	}\n", ""}}},

	// The clean stop.
	{name: "less stays reserved than was used", by: "TestRetire", edits: []edit{{"worker.go",
		"max(g.timeLocked(r), used)+g.cfg", "g.timeLocked(r)+g.cfg"}, {"worker.go", "max(end, used)", "end+0*used"}}},
	{name: "less stays reserved than was used after an old list", by: "TestRetireAfterOldList", edits: []edit{{"worker.go",
		"max(end, used)", "end+0*used"}}},
	{name: "released time is still issued", edits: []edit{{"worker.go",
		"	w.ReservedUntil, g.worker.end = end, end\n", "	g.worker.end = end\n"}, {"worker.go",
		"	if g.worker.end > 0 {\n		w.ReservedUntil = g.worker.end // as in the file\n	}\n", ""}}},
	{name: "requests wait after the end of Run", by: "TestDrain", edits: []edit{{"run.go",
		"	g.draining = true\n", ""}}},
	{name: "released time stays in the file", edits: []edit{{"worker.go",
		"	g.worker.saved.ReservedUntil = min(g.worker.saved.ReservedUntil, end)\n", ""}}},
	{name: "a stop after a lost answer lowers the record alone", by: "TestRetireAfterLostReport", edits: []edit{{"worker.go",
		"		w.ReservedUntil = g.worker.end // as in the file\n", ""}, {"worker.go", "g.confirmedLocked(w, Entry{Record: next, Version: version})", "w.Version = version"}}},
	{name: "IDs are issued after Close", edits: []edit{{"run.go",
		"	g.closed = true\n", ""}}},
	{name: "the next start may use the last millisecond again", edits: []edit{{"run.go",
		"min(s.Ceiling, g.seq.ms+1)", "min(s.Ceiling, g.seq.ms)"}}},

	{name: "a worker is released too early", by: "TestRelease", edits: []edit{{"registry.go",
		"max(now, r.Reported, r.Acquired)", "now"}}},
	{name: "a release moves the end to a later time", by: "TestRelease", edits: []edit{{"registry.go",
		"min(r.ReservedUntil-margin, max(now, r.Reported, r.Acquired))", "max(now, r.Reported, r.Acquired)"}}},
	{name: "the owner of a released worker goes on", by: "TestRelease", edits: []edit{{"registry.go",
		"	r.Incarnation = rand.Text()\n", "	_ = rand.Text()\n"}}},

	// Which worker, and for how long.
	{name: "a worker that a peer holds is taken over", by: "TestHeldByPeer", edits: []edit{{"decide.go",
		"choice := s.cfg.choice()", "choice := Choice{First: s.cfg.FirstWorker, Last: s.cfg.LastWorker}"}}},
	{name: "a file of another layout is used", by: "TestLocalFile", edits: []edit{{"run.go",
		"Layout: s.Layout, Place", "Layout: want.Layout, Place"}}},
	{name: "an own record of an earlier moment is lost", by: "TestWorkerLost", edits: []edit{{"decide.go",
		"case has && own.Incarnation == s.held.Incarnation:\n		return extend, own, nil",
		"case has && own.Incarnation == s.held.Incarnation:\n		return lose, own, nil"}}},
	{name: "an error names all that hold workers", by: "TestAllTaken", edits: []edit{{"decide.go",
		"if len(holders) == listed {", "if false {"}}},
	{name: "a clone uses the worker that the original holds", by: "TestHeldByPeer", edits: []edit{{"decide.go",
		"return e, !s.cfg.HeldByPeer(e.Worker)", "return e, true"}}},
	{name: "a worker is taken before the peers are known", by: "TestPeersKnown", edits: []edit{{"decide.go",
		"case !s.cfg.PeersKnown():", "case false:"}}},
	{name: "a worker that the configuration does not want is kept", by: "TestWorkerNotWanted", edits: []edit{{"decide.go",
		"case has && s.cfg.inRange(own.Worker):", "case has:"}}},
	{name: "each new name takes a new worker", by: "TestPods", edits: []edit{{"decide.go",
		"if e.ReservedUntil <= s.t && choice", "if false && choice"}}},
	{name: "a start reserves a day", by: "TestReservation", edits: []edit{{"worker.go",
		"min(g.cfg.Reserve.Milliseconds(), max(firstReserve, r.Mono-g.started))", "g.cfg.Reserve.Milliseconds()+0*r.Mono"}}},
	{name: "the end of a reservation comes without an alert", by: "TestRegistryAway", edits: []edit{{"generator.go",
		"<= (w.ReservedUntil-w.Reported)/2 {", "<= 0 {"}}},
	{name: "a registry that hangs holds up a start from the file", by: "TestRegistryHangs", edits: []edit{{"run.go",
		"timeout, pause := firstTimeout, firstPause", "timeout, pause := keepTimeout, firstPause"}}},

	// The start.
	{name: "a start does not check what is on record", by: "TestStartBehind", edits: []edit{{"decide.go",
		"	if !s.starting {\n", "	if true {\n"}}},
	{name: "the clock is not checked without the registry", by: "TestStartBehind", edits: []edit{{"decide.go",
		"	case behind > 0:\n", "	case behind > 0 && s.away == nil:\n"}}},
	{name: "the ceiling counts as the last run's clock", by: "TestStartAfterCrash", edits: []edit{{"decide.go",
		"s.saved.Ceiling - restAtStart", "s.saved.Ceiling"}}},
	{name: "a time that was never trusted is on record", by: "TestStartAfterStep", edits: []edit{{"worker.go",
		"next.ReservedUntil, next.Reported = g.until(e.ReservedUntil)",
		"next.ReservedUntil, _ = g.until(e.ReservedUntil)\n	next.Reported = g.cfg.Clock().Wall"}}},
	{name: "peers that do not answer use up the time of an attempt", by: "TestStartAmidAnswers", edits: []edit{{"clock.go",
		"context.WithTimeout(ctx, askFor)", "context.WithTimeout(ctx, 5*askFor)"}}},
	{name: "a lost worker is a new start", by: "TestStartIsOver", edits: []edit{{"worker.go",
		"s.starting, s.stopping = !g.worker.started,", "s.starting, s.stopping = g.worker.held == nil,"}}},
	{name: "a restart does not compare its clock", by: "TestStartComparesClock", edits: []edit{{"decide.go",
		"	case s.differs():\n		return wait", "	case false:\n		return wait"}}},
	{name: "one wrong clock keeps others from starting", by: "TestStartComparesClock", edits: []edit{{"decide.go",
		"return 2*s.cfg.near(s.peers) < len(s.peers)", "return s.cfg.near(s.peers) < len(s.peers)"}}},
	{name: "a worker whose times are ahead is given up without peers", by: "TestStartAfterClockAhead", edits: []edit{{"decide.go",
		" && has && s.cfg.near(s.peers) > 0:", " && has:"}}},
	{name: "a worker whose times are ahead is waited for", by: "TestStartAfterClockAhead", edits: []edit{{"decide.go",
		" && has && s.cfg.near(s.peers) > 0:", " && false:"}}},
	{name: "a registry refuses a generator that has had a worker", by: "TestRegistryRefuses", edits: []edit{{"run.go",
		"errors.Is(err, ErrRefused) && !g.worker.started &&", "errors.Is(err, ErrRefused) &&"}}},

	// Clock and sequence.
	{name: "requests wait for a clock that is 6 ms behind", by: "TestClockRules", edits: []edit{{"clock.go",
		"small := offset <= g.cfg.MaxBack.Milliseconds()\n", "small := offset <= g.cfg.MaxBack.Milliseconds()+1\n"}}},
	{name: "requests wait for the offset of the clock once", by: "TestClockRules", edits: []edit{{"clock.go",
		"backwardsWaiting, 2*offset", "backwardsWaiting, offset"}}},
	{name: "each refused request is an alert", by: "TestClockRules", edits: []edit{{"clock.go",
		"	case c.backwards != backwardsRefusing:\n", "	default:\n"}}},
	{name: "the end of an episode is not reported", by: "TestClockRules", edits: []edit{{"clock.go",
		"		g.cfg.Notify(Recovered{worker, EpisodeBackwards})\n", ""}}},
	{name: "peers that agreed with another clock count", by: "TestSetWhilePeersAreAsked", edits: []edit{{"clock.go",
		"|| !g.cfg.agrees(now.setSince(before)) {", "{"}}},
	{name: "a pause while peers are asked looks like a wrong clock", by: "TestPauseWhilePeersAreAsked", edits: []edit{{"clock.go",
		"now.Mono-before.Mono > 2*askFor.Milliseconds() || ", ""}}},
	{name: "a clock that is corrected slowly is doubted", by: "TestGuardSlewing", edits: []edit{{"clock.go",
		"if r.Wall >= issued || -ahead <= g.tolerance {", "if r.Wall >= issued {"}}},
	{name: "an event does not say what the peers' clocks are", by: "TestClockEvents", edits: []edit{{"clock.go",
		"			skewed.Peers = before.Wall + Median(peers)\n", ""}}},
	{name: "IDs that are there cost an allocation", by: "TestTakeAllocatesNothing", edits: []edit{{"issue.go",
		"return g.take(ctx, make([]Range, 0, 1), n)", "return g.take(ctx, nil, n)"}}},
	{name: "the end of the layout comes without an alert", by: "TestEndOfLayout", edits: []edit{{"generator.go",
		"		g.cfg.Notify(Ending{w.Worker, end})\n", ""}}},
	{name: "an idle millisecond begins at 0", by: "TestSequenceStart", edits: []edit{{"issue.go",
		"s.ms, s.next, s.packed = t, s.random(max(1, s.size/spread)), false", "s.ms, s.next, s.packed = t, 0, false"}}},
	{name: "a large request takes all of a millisecond", by: "TestFairness", edits: []edit{{"queue.go",
		"max(1, g.seq.size/turns)", "g.seq.size"}, {"queue.go",
		"g.queue.MoveToBack(w.element)", "_ = w.element"}}},
	{name: "any number of requests wait", by: "TestOverloaded", edits: []edit{{"queue.go",
		" || int64(q.Len()) >= g.cfg.MaxWaiting", ""}}},
	{name: "a step forward is trusted", edits: []edit{{"clock.go",
		"if ahead > g.tolerance {", "if false {"}}},
	{name: "a step forward is trusted at once without peers", by: "TestClockRules", edits: []edit{{"clock.go",
		"now.Mono-g.clock.guard.since >= trustAlone", "true"}}},
	{name: "a lost answer of peers that disagreed counts as no peers", by: "TestPeersVanish", edits: []edit{{"clock.go",
		"g.clock.guard.since = now.Mono", "_ = now.Mono"}}},
	{name: "the sequence goes back with the clock", edits: []edit{
		{"issue.go", "case lag <= 0,", "case lag == 0,"},
		{"clock.go", "	case offset <= 0:\n", "	case true:\n"}}},
	{name: "a worker begins before its floor", edits: []edit{{"worker.go",
		"	g.seq.skip(w.floor - g.seq.unit) ", "	"}}},
	{name: "a unit of time counts as the millisecond of its entry", edits: []edit{{"issue.go",
		"t = g.cfg.Layout.UnitOf(now)", "t = now"}}},
	{name: "a worker begins amid a unit of time", by: "TestUnitsAreReservedWhole", edits: []edit{{"worker.go",
		"floor: g.cfg.Layout.UnitFrom(s.Ceiling)", "floor: s.Ceiling"}}},
	{name: "a reservation ends amid a unit of time", by: "TestUnitsAreReservedWhole", edits: []edit{{"worker.go",
		"g.cfg.Layout.UnitFrom(max(reserved, t+ahead))", "max(reserved, t+ahead)"}}},
	{name: "a shortened reservation ends amid a unit of time", by: "TestUnitsAreReservedWhole", edits: []edit{{"worker.go",
		"end = g.cfg.Layout.UnitFrom(max(end, used))", "end = max(end, used)"}}},
	{name: "a clock is behind by all of a unit of time", by: "TestUnitClockBack", edits: []edit{{"issue.go",
		"g.checkBackwardsLocked(r, now)", "g.checkBackwardsLocked(r, t)"}}},
	{name: "the ceiling is amid a unit of time", by: "TestRestartWithinUnit", edits: []edit{{"ceiling.go",
		"g.cfg.Layout.UnitOf(g.timeLocked(r))", "g.timeLocked(r)"}}},
	{name: "the unit after the last number wraps", by: "TestLayoutCorners", edits: []edit{{"layout.go",
		"min(begin, math.MaxInt64-l.UnitMS) + l.UnitMS", "begin + l.UnitMS"}}},
	{name: "a layout has 64 bits", by: "TestLayoutValidate", edits: []edit{{"layout.go",
		"	case l.Bits() > idBits:", "	case false:"}}},
	{name: "a new installation begins with a layout that has ended", by: "TestLayoutCheckLife", edits: []edit{{"layout.go",
		"l.End()-now < ending", "l.End() < now-ending"}}},
	{name: "another unit of time is no difference", by: "TestLayoutRecord", edits: []edit{{"layout.go",
		"(--time-unit)\", l.Unit(), want.Unit()", "(--time-unit)\", 1, 1"}}},
	{name: "an ID of another layout is decoded", by: "TestLayoutCorners", edits: []edit{{"layout.go",
		"if id>>l.Bits() != 0 {", "if false {"}}},
	{name: "more requests wait than units of time have IDs", by: "TestUnitQueue", edits: []edit{{"generator.go",
		"cfg.MaxWait.Milliseconds()/cfg.Layout.Unit()", "cfg.MaxWait.Milliseconds()"}}},
	{name: "the rest of a unit of time is not for the requests that wait", by: "TestCeiling", edits: []edit{{"issue.go",
		"max(maxLag, s.unit)", "int64(maxLag)"}}},
	{name: "a millisecond has one ID too many", edits: []edit{{"issue.go",
		"if g.seq.size-g.seq.next >= n {", "if g.seq.size-g.seq.next+1 >= n {"}}},
}
