package generator

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// silentAfter is how long no own heartbeat may come back until this generator is away. It is
	// less than heartbeatExpires, after which operators' changes do not wait for it.
	silentAfter = 2 * time.Second
	// stoodAfter is how long the process may stand still until it is away. A look comes every
	// lookEvery.
	stoodAfter = time.Second
	// tooOld: after being away for longer, the requests that came meanwhile get no answer. Their
	// callers have given up.
	tooOld = 2 * time.Second
	// gateFor is how long requests wait after a return for what the generator must learn.
	gateFor = time.Second
	// settles is how long after a return an operator's change may still come that was sent before
	// it: a NATS server that stood still reads the connections of its clients in any order. It is
	// longer than gateFor.
	settles = 2 * time.Second
	// learnSoon and learnAgain are the pauses after a failed attempt to learn, while requests wait
	// and afterwards.
	learnSoon, learnAgain = 20 * time.Millisecond, time.Second
	// deafAfter is how long it may be away until it reconnects, 4 s after the last heartbeat that
	// came back. reconnectEvery is how long a connection has until heartbeats come back on it.
	deafAfter      = 2 * time.Second
	reconnectEvery = 10 * time.Second
)

// moment is a time by two clocks. The monotonic clock stops while a machine sleeps, so the longer
// time counts.
type moment struct {
	time.Time
	boot time.Duration // bootTime
}

func at(now time.Time) moment { return moment{now, bootTime()} }

func (m moment) since(then moment) time.Duration { return max(m.Sub(then.Time), m.boot-then.boot) }

// contact is whether this generator can know what the others send.
//
//	from                  when                                               to
//	stateHere, stateBack  2 s without an own heartbeat, or it stood still    stateAway
//	                      for 1 s
//	stateHere             a reconnect                                        stateBack, theWorker
//	stateAway             a heartbeat comes back that was sent since         stateBack, to learn all
//	stateBack             all is learned, or gateFor is over                 stateHere
type contact int32

// The states of contact.
const (
	stateHere contact = iota
	stateAway
	stateBack
)

// String returns the state as tests print it.
func (c contact) String() string { return [...]string{"here", "away", "back"}[c] }

// What a generator must learn after it was away.
const (
	// theRecords have the changes of operators that did not wait for it.
	theRecords = iota
	// theWorker may be held by another generator, if the registry has lost its record meanwhile.
	theWorker
	lessons
)

// lesson is what the generator knows of one of them.
type lesson struct {
	missing bool
	since   moment // requests wait for it from then on; zero: none wait
	trying  bool
	tried   moment // the end of the last attempt
	err     error  // of the last attempt
}

func (l *lesson) shut(now moment) bool {
	return l.missing && !l.since.IsZero() && now.since(l.since) < gateFor
}

// away knows whether this generator is in contact with NATS: whether its own heartbeats come back,
// and whether the process ran. If it was away, it must learn what happened meanwhile, before it
// hands out IDs from memory.
//
// The methods are safe for concurrent use. Each looks first whether the contact was lost, because a
// process that stood still does not notice it:
//
//	group.hear ── came         an own heartbeat
//	heartbeats ── send
//	link.look ── reconnected
//	learner.run ── tick, next, learned, relearn      next says what to do
//	services ── isShut, drops, mustReopen, reopened  what becomes of requests; await ── shutUntil
//	others ── settled, missed, steadySince           what can be known of the others
//	alerts ── staleErr
type away struct {
	state    atomic.Int32              // contact; stored under mu
	due      atomic.Pointer[time.Time] // the first moment at which the contact may be lost
	connects atomic.Uint64             // how many reconnects are known
	dropping atomic.Bool               // requests that are read now came while it was away
	work     chan struct{}             // holds one: call next

	mu      sync.Mutex
	changed chan struct{} // closed when those that wait must look again
	echoed  time.Time     // when the newest heartbeat was sent that came back
	ticked  moment        // the last tick; zero: it has not begun, or has ended
	began   moment
	steady  moment // since then it has heard all that the others sent
	left    moment // when it was last found away
	lasted  time.Duration
	lessons [lessons]lesson
	round   int    // of lessons: an attempt that began in an earlier round does not count
	back    moment // when it last was stateBack after stateAway; zero: it never was
	quiet   moment // the last reconnect
	stale   bool   // requests went on without theRecords, and they are still missing
}

func newAway() *away {
	a := &away{work: make(chan struct{}, 1), changed: make(chan struct{})}
	a.due.Store(new(time.Time))
	return a
}

// begin makes it hear the others from now on. reconnects is how many there were.
func (a *away) begin(now moment, reconnects uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connects.Store(reconnects)
	a.ticked, a.echoed, a.began, a.steady = now, now.Time, now, now
}

// end lets all requests go on, for good.
func (a *away) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ticked, a.lessons = moment{}, [lessons]lesson{}
	a.becomeLocked(stateHere)
}

// send returns the number of a heartbeat that is sent now: the ns since begin.
func (a *away) send(now moment) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookLocked(now)
	return uint64(now.Sub(a.began.Time))
}

// came notes that an own heartbeat came back.
func (a *away) came(now moment, number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookLocked(now)
	sent := a.began.Add(time.Duration(number))
	if sent.After(now.Time) {
		return // it was sent before begin
	}
	if sent.After(a.echoed) {
		a.echoed = sent
	}
	if contact(a.state.Load()) == stateAway && sent.After(a.left.Time) {
		a.steady, a.back = now, now
		a.missLocked(theRecords, now)
		a.missLocked(theWorker, now)
		a.becomeLocked(stateBack)
	}
}

// reconnected notes how many reconnects there were.
func (a *away) reconnected(now moment, reconnects uint64) {
	if a.connects.Load() == reconnects {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookLocked(now)
	a.connects.Store(reconnects)
	a.steady, a.quiet = now, now
	if contact(a.state.Load()) != stateAway {
		a.missLocked(theWorker, now)
		a.becomeLocked(stateBack)
	}
}

// relearn makes it learn something for which no request needs to wait.
func (a *away) relearn(what int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.lessons[what].missing {
		a.lessons[what] = lesson{missing: true}
	}
	signal(a.work)
}

// learned notes the end of an attempt.
func (a *away) learned(now moment, round, what int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := &a.lessons[what]; round == a.round {
		l.trying, l.tried, l.err, l.missing = false, now, err, err != nil
	}
	a.lookLocked(now)
	signal(a.work)
}

// tick is a look of the loop.
func (a *away) tick(now moment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookLocked(now)
	if !a.ticked.IsZero() {
		a.ticked = now
	}
	a.dueLocked()
	a.wakeLocked() // a gate opens by time
}

// decision is what next decides.
type decision struct {
	state     contact
	lasted    time.Duration // stateAway: how long it had stood still, or not heard a heartbeat
	reconnect bool
	learn     [lessons]bool
	round     int           // of these attempts
	patience  time.Duration // of each
}

// next returns what to do, each once.
func (a *away) next(now moment) (do decision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookLocked(now)
	do = decision{state: contact(a.state.Load()), lasted: a.lasted, round: a.round, patience: learnPatience}
	for what := range a.lessons {
		l, pause := &a.lessons[what], learnAgain
		if l.shut(now) {
			pause, do.patience = learnSoon, gateFor
		}
		if l.missing && !l.trying && do.state != stateAway && (l.tried.IsZero() || now.since(l.tried) >= pause) {
			l.trying, do.learn[what] = true, true
		}
	}
	do.reconnect = do.state == stateAway && now.since(a.left) >= deafAfter && now.since(a.quiet) >= reconnectEvery
	if do.reconnect {
		a.quiet = now
	}
	return do
}

// staleErr says why requests go on although theRecords are not known; nil: they are known, or
// requests wait for them.
func (a *away) staleErr(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &a.lessons[theRecords]
	a.stale = l.missing && (a.stale || !l.since.IsZero() && !l.shut(at(now)))
	if !a.stale {
		return nil
	}
	return cmp.Or(l.err, errCutOff)
}

// lookLocked goes to the next state if it is time.
func (a *away) lookLocked(now moment) {
	if a.ticked.IsZero() {
		return
	}
	state, stood, silent := contact(a.state.Load()), now.since(a.ticked), now.Sub(a.echoed)
	switch {
	case stood > stoodAfter:
		a.leaveLocked(now, stood)
		a.lessons[theRecords].since = now // for HTTP, which is served also without NATS
	case silent > silentAfter && state != stateAway:
		a.leaveLocked(now, silent)
	case state == stateBack && !a.lessons[theRecords].shut(now) && !a.lessons[theWorker].shut(now):
		a.becomeLocked(stateHere)
	}
}

// leaveLocked makes it away.
func (a *away) leaveLocked(now moment, lasted time.Duration) {
	a.ticked, a.left, a.lasted = now, now, lasted
	if lasted > tooOld {
		a.dropping.Store(true)
	}
	a.missLocked(theRecords, moment{})
	a.missLocked(theWorker, moment{})
	a.becomeLocked(stateAway)
}

// missLocked makes requests wait for a lesson since then.
func (a *away) missLocked(what int, since moment) {
	a.round++
	for i := range a.lessons {
		a.lessons[i].trying = false
	}
	a.lessons[what] = lesson{missing: true, since: since}
}

func (a *away) becomeLocked(c contact) {
	a.state.Store(int32(c))
	a.dueLocked()
	a.wakeLocked()
	signal(a.work)
}

func (a *away) wakeLocked() {
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *away) dueLocked() {
	due := a.ticked.Add(min(stoodAfter, silentAfter-a.ticked.Sub(a.echoed)))
	a.due.Store(&due)
}

// isShut reports whether requests that came at this time wait. Each request looks.
func (a *away) isShut(g gate, now time.Time) bool {
	if contact(a.state.Load()) == stateHere {
		if due := a.due.Load(); !now.After(*due) && !now.Round(0).After(due.Round(0)) {
			return false
		}
	}
	return a.shutUntil(g, at(now)) != nil
}

// shutUntil returns a channel that is closed when those that wait must look again; nil: the gate is
// open.
func (a *away) shutUntil(g gate, now moment) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookLocked(now)
	if a.shutLocked(g, now) {
		return a.changed
	}
	return nil
}

func (a *away) shutLocked(g gate, now moment) bool {
	isAway := contact(a.state.Load()) == stateAway
	if g == gateSnowflakes {
		return isAway || a.lessons[theWorker].shut(now)
	}
	return isAway && g == gateNATS || a.lessons[theRecords].shut(now)
}

// drops reports whether a request over NATS that is read now may have come while this generator was
// away for so long that its caller has given up. It gets no answer, so that it uses up no IDs.
func (a *away) drops(now time.Time) bool {
	a.isShut(gateNATS, now) // looks
	return a.dropping.Load()
}

// mustReopen reports whether the services must be opened again, so that NATS passes on only new
// requests.
func (a *away) mustReopen() bool { return a.dropping.Load() && contact(a.state.Load()) != stateAway }

// reopened notes that they were.
func (a *away) reopened() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if contact(a.state.Load()) != stateAway { // else they will be again
		a.dropping.Store(false)
	}
}

// settled reports whether all is read that the others sent while this generator was away.
func (a *away) settled(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := at(now)
	a.lookLocked(m)
	return contact(a.state.Load()) != stateAway && (a.back.IsZero() || m.since(a.back) >= settles)
}

// steadySince returns since when this generator has heard all that the others sent. ok is false
// while it is away.
func (a *away) steadySince(now time.Time) (since time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookLocked(at(now))
	return a.steady.Time, contact(a.state.Load()) != stateAway && !a.steady.IsZero()
}

// missed reports whether heartbeats of the others may have been missed, and not have come since.
func (a *away) missed(now time.Time) bool {
	since, ok := a.steadySince(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	return !ok || since != a.began.Time && now.Sub(since) < heartbeatExpires
}
