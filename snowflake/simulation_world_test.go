//go:build !race

package snowflake_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

const (
	day   = 24 * time.Hour
	birth = 1_767_225_600_000 // Unix ms of true time 0: 2026
	// future is a time that is only in IDs when a clock has leapt by years.
	future = birth + 10*365*24*3600*1000
	// turns is how long a world has faults.
	turns = 160
)

var errNoAnswer = errors.New("the registry does not answer")

// simWorld is where generators live. Nothing in it runs at the same time as
// anything else: each step gives the turn to one owner, and what an owner does
// may give turns to others in the middle of it.
type simWorld struct {
	random *rand.Rand
	config snowflake.Config // what all have in common
	// checked: starts look at their clocks. In most worlds they do not, as no ID
	// must be issued twice anyway.
	checked bool
	trace   func(format string, args ...any)

	now    time.Duration // true time
	turn   int
	jumpy  int  // how rarely time makes a leap
	faulty int  // and how rarely a call has a fault
	calm   bool // no faults any more
	owners []*owner

	registry *snowflaketest.Memory
	away     int               // the turn at which the registry comes back
	late     []func()          // writes that are still under way, though their caller has an error
	old      []snowflake.Entry // what a List once was
	held     map[int64][]hold  // by worker, as the registry has had it

	ids      allocatortest.Checker
	used     map[stretch][2]int64 // the first and the last time of its IDs
	latest   map[int64]int64      // by worker
	happened map[string]int64
	err      error // the first thing that was wrong
}

// hold is the time of a worker that the registry has given to one owner.
type hold struct {
	by          *owner
	from, until int64
}

func (h hold) String() string { return fmt.Sprintf("%s from %d until %d", h.by.name, h.from, h.until) }

// stretch is what one process did with a worker while its owner held it.
type stretch struct {
	worker int64
	hold   int
	p      *process
}

func newSimWorld(seed uint64) *simWorld {
	random := rand.New(rand.NewPCG(seed, 0))
	w := &simWorld{
		random: random, trace: func(string, ...any) {}, jumpy: 20 << random.IntN(6), faulty: 5 << random.IntN(4),
		registry: snowflaketest.NewMemory(), held: make(map[int64][]hold), used: make(map[stretch][2]int64), latest: make(map[int64]int64), happened: make(map[string]int64),
	}
	w.checked = pick(w, true, false, false)
	first := random.Int64N(3)
	w.config = snowflake.Config{
		Layout:      w.layout(),
		Log:         slog.New(slog.DiscardHandler),
		FirstWorker: first, LastWorker: first + random.Int64N(6),
		Reserve: pick(w, time.Second, 5*time.Second, time.Minute, 0, 0),
		Grace:   pick(w, time.Millisecond, time.Second, 0),
		MaxBack: pick(w, 0, time.Second, time.Second),

		MaxClockWait: pick(w, 0, 0, 6*time.Hour),
	}
	for i := range 2 + random.IntN(3) {
		w.owners = append(w.owners, &owner{w: w, name: fmt.Sprint("owner", i), clock: newMachineClock(w), disk: snowflaketest.NewDisk()})
	}
	return w
}

// layout is the default one in half of the worlds. Units of time are as long as a second in the others, and a
// worker may have few IDs in one.
func (w *simWorld) layout() snowflake.Layout {
	if w.random.IntN(2) == 0 {
		return snowflake.DefaultLayout()
	}
	unit := w.random.IntN(len(snowflake.Units()))
	l := snowflake.Layout{
		Epoch: snowflake.DefaultEpoch + w.random.Int64N(1000), TimeBits: 41 - 3*unit, WorkerBits: 4 + w.random.IntN(6), SequenceBits: pick(w, 2, 5, 8, 12),
	}.In(snowflake.Units()[unit])
	if err := l.Validate(); err != nil {
		w.fail("%+v: %v", l, err)
	}
	return l
}

// run lets the world go on with faults, and then without, and returns what was
// wrong.
func (w *simWorld) run() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	for w.turn < turns && w.err == nil {
		w.step()
	}
	if w.err == nil && w.random.IntN(3) == 0 { // it takes as long as the rest
		w.recovers()
	}
	for _, o := range w.owners {
		if o.p != nil {
			o.p.dead = true
			o.p.end()
		}
		o.endGhosts()
	}
	ids, err := w.ids.Check()
	w.happened["IDs"] = ids
	return cmp.Or(w.err, err, w.apart())
}

// fail notes what is wrong.
func (w *simWorld) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %v: "+format, append([]any{w.now}, args...)...)
		w.trace("%v", w.err)
	}
}

// note counts and traces what happens to an owner.
func (w *simWorld) note(who, what string, details ...any) {
	w.happened[what]++
	w.trace("%v %s: %s %v", w.now, who, what, details)
}

// chance is true once in so many times, while there are faults.
func (w *simWorld) chance(in int) bool { return !w.calm && w.random.IntN(in) == 0 }

func (w *simWorld) upTo(d time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(d)))
}

func (w *simWorld) count() int64 { return pick[int64](w, 1, 1, 1, 1, 1, 2, 64, 65, 1000, 4096, 10_000) }

func pick[T any](w *simWorld, from ...T) T { return from[w.random.IntN(len(from))] }

// step lets some time pass and gives the turn to an owner.
func (w *simWorld) step() {
	w.turn++
	w.pass()
	if len(w.late) > 0 && w.chance(8) {
		i := w.random.IntN(len(w.late))
		write := w.late[i]
		w.late = append(w.late[:i], w.late[i+1:]...)
		write()
	}
	switch {
	case w.chance(100):
		w.loseRegistry()
	case len(w.owners) < 6 && w.chance(300):
		w.pickOwner().copy()
	}
	w.pickOwner().act()
}

func (w *simWorld) loseRegistry() {
	w.away = w.turn + w.random.IntN(60)
	w.note("registry", "away", w.away-w.turn, "turns")
}

func (w *simWorld) pickOwner() *owner { return w.owners[w.random.IntN(len(w.owners))] }

// pass lets time pass: little as a rule, sometimes much, and often to a moment
// at which something ends, and somebody asks for an ID.
func (w *simWorld) pass() {
	var most time.Duration
	switch n := w.random.IntN(20); {
	case w.chance(w.jumpy):
		most = pick(w, 2*time.Minute, time.Hour, 26*time.Hour)
	case n < 8:
		return
	case n < 14:
		most = 3 * time.Millisecond
	case n < 17:
		most = time.Second
	case n < 18:
		most = 3 * time.Second
	default:
		o := w.pickOwner()
		if d := o.clock.until(o.edge()); d > 0 && d < time.Hour {
			w.now += d
			if o.p != nil && o.p.runs() {
				o.p.request(1)
			}
			w.lookAlive()
		}
		return
	}
	w.now += w.upTo(most)
	w.lookAlive()
}

// list, add and put are what the registry does.

func (w *simWorld) list() []snowflake.Entry {
	entries, _ := w.registry.List(context.Background())
	return entries
}

func (w *simWorld) add(o *owner, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	taken := make(map[int64]bool) // asked for here, not under the registry's lock
	for worker := c.First; worker <= c.Last; worker++ {
		taken[worker] = c.Taken(worker)
	}
	c.Taken = func(worker int64) bool { return taken[worker] }
	e, err := w.registry.Add(context.Background(), r, c)
	if err == nil {
		w.note(o.name, "added", e.Worker, e.ReservedUntil)
		w.held[e.Worker] = []hold{{o, 0, e.ReservedUntil}}
	}
	return e, err
}

func (w *simWorld) put(o *owner, r snowflake.Record, version uint64) (uint64, error) {
	version, err := w.registry.Put(context.Background(), r, version)
	if err != nil {
		w.note(o.name, "conflict", r.Worker)
		return 0, err
	}
	if latest, used := w.latest[r.Worker]; used && r.ReservedUntil <= latest { // one whose clock is before 1970 has reserved nothing
		w.fail("%s reserves worker %d until %d, where IDs are from %d", o.name, r.Worker, r.ReservedUntil, latest)
	}
	holds := w.held[r.Worker]
	last := &holds[len(holds)-1]
	if last.by == o {
		last.until = r.ReservedUntil
		return version, nil
	}
	w.note(o.name, "taken over", r.Worker, last.until, r.ReservedUntil)
	if r.ReservedUntil < last.until {
		w.fail("%s takes worker %d over until %d, before the %d of its predecessor", o.name, r.Worker, r.ReservedUntil, last.until)
	}
	w.held[r.Worker] = append(holds, hold{o, last.until, r.ReservedUntil})
	return version, nil
}

// use notes an ID that a process issued, maybe before it lost the worker. It is
// wrong if the registry never gave that time to its owner.
func (w *simWorld) use(p *process, id snowflake.Parts) {
	for i, h := range w.held[id.Worker] {
		if h.by != p.owner || id.UnixMS < h.from || h.until <= id.UnixMS {
			continue
		}
		s := stretch{id.Worker, i, p}
		span, ok := w.used[s]
		if !ok {
			span[0] = id.UnixMS
		}
		w.used[s] = [2]int64{min(span[0], id.UnixMS), max(span[1], id.UnixMS)}
		w.latest[id.Worker] = max(w.latest[id.Worker], id.UnixMS)
		return
	}
	w.fail("%s got %+v, of a time that was not reserved for it: %+v", p.name, id, w.held[id.Worker])
}

// restartable checks that a start from what is left of the owner's file, while
// the registry is away, would issue nothing that was issued before, nor beyond
// what is reserved.
func (w *simWorld) restartable(o *owner, left *snowflaketest.Disk) {
	file, err := snowflake.NewFile(left)
	if err != nil {
		w.fail("what is left of the file of %s: %v", o.name, err)
		return
	}
	s, ok := file.Saved()
	if !ok || s.Worker < 0 || s.Place != o.name {
		return
	}
	for used, span := range w.used {
		// It would issue times from the ceiling on, and before the end of the reservation.
		if used.p.owner == o && used.worker == s.Worker && s.Ceiling <= span[1] && span[0] < s.ReservedUntil {
			w.fail("%s would issue again what it has issued until %d: %+v", o.name, span[1], s)
		}
	}
	for _, h := range slices.Backward(w.held[s.Worker]) {
		if h.by == o && s.ReservedUntil > h.until {
			w.fail("%s would issue what is not reserved: %+v, %+v", o.name, s, w.held[s.Worker])
		}
		if h.by == o {
			break
		}
	}
}

// apart returns an error if two processes used the same time of a worker, or
// one the time amid another's, whatever the sequence numbers.
func (w *simWorld) apart() error {
	byTime := slices.SortedFunc(maps.Keys(w.used), func(x, y stretch) int {
		return cmp.Or(cmp.Compare(x.worker, y.worker), cmp.Compare(w.used[x][0], w.used[y][0]), cmp.Compare(w.used[x][1], w.used[y][1]))
	})
	for i := 1; i < len(byTime); i++ {
		x, y := byTime[i-1], byTime[i]
		if x.worker == y.worker && w.used[x][1] >= w.used[y][0] {
			return fmt.Errorf("worker %d was used by %s from %d to %d, and by %s from %d to %d",
				x.worker, x.p.name, w.used[x][0], w.used[x][1], y.p.name, w.used[y][0], w.used[y][1])
		}
	}
	return nil
}

// recovers checks that all goes well when the faults have ended: who has what it
// needs issues soon, and everybody does when all that was reserved is over.
func (w *simWorld) recovers() {
	w.calm, w.away, w.late = true, 0, nil
	live := w.owners[:0]
	for _, o := range w.owners {
		if o.gone {
			continue
		}
		live = append(live, o)
		o.heal()
	}
	w.owners = live
	w.serveAll()
	if w.err != nil {
		return
	}
	now, free := birth+w.now.Milliseconds(), w.free()
	for _, o := range live {
		if o.p == nil || errors.Is(o.p.g.State().Err, snowflake.ErrClockBackwards) {
			continue // its clock was ahead in its last run
		}
		m := o.p.g.Marks()
		if !o.p.served && m.Last+w.config.Layout.Unit() <= o.p.asked && (m.Ceiling > 0 || free > 0) { // else it waited for the next unit of time
			w.fail("%s issues nothing, though there are no more faults: %+v, %d free workers, %+v", o.name, m, free, o.p.g.State())
		}
		if o.p.served {
			w.happened["served again, a worker"]++
		}
	}
	end := now
	for _, e := range w.list() {
		end = max(end, e.ReservedUntil, e.Reported)
	}
	for _, o := range live {
		if o.p != nil {
			end = max(end, o.p.g.Marks().Last)
		}
		if file, err := snowflake.NewFile(o.disk.Copy()); err == nil {
			s, _ := file.Saved()
			end = max(end, s.Ceiling)
		}
	}
	w.now += time.Duration(end-now) * time.Millisecond
	w.lookAlive()
	w.trace("%v: all that was reserved is over", w.now)
	for _, o := range live {
		if o.p == nil {
			o.start()
		}
		o.p.tries = 0
	}
	w.serveAll()
	served := 0
	for _, o := range live {
		if o.p != nil && o.p.served {
			served++
		}
	}
	if want := min(len(live), int(w.config.LastWorker-w.config.FirstWorker+1)); w.err == nil && served < want {
		for _, o := range live {
			if o.p != nil {
				w.trace("%s: served %v, %+v, %+v", o.name, o.p.served, o.p.g.Marks(), o.p.g.State())
			}
		}
		w.fail("%d of %d owners issue IDs, though all that was reserved is over; want %d", served, len(live), want)
	}
	if served == len(live) {
		w.happened["served again, all"]++
	}
}

// free is how many workers somebody may take.
func (w *simWorld) free() int64 {
	free := w.config.LastWorker - w.config.FirstWorker + 1
	for _, e := range w.list() {
		if e.ReservedUntil > birth+w.now.Milliseconds() {
			free--
		}
	}
	return free
}

// serveAll gives everybody turns until that is of no more use, or it has lasted
// longer than a step forward is doubted.
func (w *simWorld) serveAll() {
	pause := min(3*time.Second, cmp.Or(w.config.Reserve, snowflake.DefaultReserve)/4)
	for end := w.now + 15*time.Second; ; w.now += pause {
		w.lookAlive()
		done := true
		for _, o := range w.owners {
			if o.p == nil && o.restart {
				o.start()
			}
			done = (o.p == nil || o.p.live()) && done
		}
		if done || w.now >= end || w.err != nil {
			return
		}
	}
}
