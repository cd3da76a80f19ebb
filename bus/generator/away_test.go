package generator

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/snowflake"
)

// contactWorld is a generator's contact in virtual time.
type contactWorld struct {
	*away
	now   moment
	hangs bool          // NATS delivers nothing
	lag   time.Duration // until a heartbeat comes back
	under []uint64      // heartbeats on their way
	beats time.Duration
	did   []decision // what next said, without what says nothing
}

func newContactWorld() *contactWorld {
	w := &contactWorld{away: newAway(), now: at(time.Unix(1_700_000_000, 0))}
	w.begin(w.now, 0)
	w.pass(3 * time.Second)
	return w
}

// pass lets the loop run: a look every lookEvery, a heartbeat every second.
func (w *contactWorld) pass(d time.Duration) {
	for ; d > 0; d -= lookEvery {
		step := min(d, lookEvery)
		w.jump(step, step)
		w.tick(w.now)
		for len(w.under) > 0 && !w.hangs && w.now.Sub(w.began.Add(time.Duration(w.under[0]))) >= w.lag {
			w.came(w.now, w.under[0])
			w.under = w.under[1:]
		}
		if w.beats += step; w.beats >= heartbeatEvery {
			w.beats = 0
			w.beat()
		}
		w.step()
	}
}

// jump lets time pass by both clocks while the process stands still.
func (w *contactWorld) jump(mono, boot time.Duration) {
	w.now = moment{w.now.Add(mono), w.now.boot + boot}
}

// beat sends a heartbeat. It comes back unless NATS hangs.
func (w *contactWorld) beat() {
	number := w.send(w.now)
	switch {
	case w.hangs:
	case w.lag > 0:
		w.under = append(w.under, number)
	default:
		w.came(w.now, number)
	}
}

func (w *contactWorld) step() decision {
	do := w.next(w.now)
	if do.reconnect || do.learn != [lessons]bool{} {
		w.did = append(w.did, do)
	}
	return do
}

// learn ends the attempts that have begun.
func (w *contactWorld) learn(err error) {
	for what := range w.lessons {
		w.learned(w.now, w.round, what, err)
	}
	w.step()
}

// shut has a letter for each gate that is shut, and D if requests are dropped.
func (w *contactWorld) shut() (list string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for gate, letter := range map[gate]string{gateNATS: "N", gateHTTP: "H", gateSnowflakes: "S"} {
		if w.shutLocked(gate, w.now) {
			list += letter
		}
	}
	if w.dropping.Load() {
		list += "D"
	}
	letters := []rune(list)
	slices.Sort(letters)
	return string(letters)
}

// TestAway is the table of transitions, with what waits in each state.
func TestAway(t *testing.T) {
	t.Parallel()
	type steps []struct {
		name  string
		do    func(*contactWorld)
		state contact
		shut  string
	}
	hang := func(d time.Duration) func(*contactWorld) {
		return func(w *contactWorld) { w.hangs = true; w.pass(d) }
	}
	stand := func(mono, boot time.Duration) func(*contactWorld) {
		return func(w *contactWorld) { w.jump(mono, boot); w.tick(w.now) }
	}
	deliver := func(w *contactWorld) { w.hangs = false; w.jump(ms, ms); w.beat() }
	learn := func(w *contactWorld) { w.learn(nil) }
	pass := func(d time.Duration) func(*contactWorld) { return func(w *contactWorld) { w.pass(d) } }
	reconnect := func(n uint64) func(*contactWorld) { return func(w *contactWorld) { w.reconnected(w.now, n) } }
	for name, script := range map[string]steps{
		"NATS hangs": {
			{"for a moment", hang(1900 * ms), stateHere, ""},
			{"for longer", hang(300 * ms), stateAway, "DNS"},
			{"for minutes", hang(2 * time.Minute), stateAway, "DNS"},
			{"a return", deliver, stateBack, "DHNS"},
			{"the services are opened again", func(w *contactWorld) { w.reopened() }, stateBack, "HNS"},
			{"the records are known", func(w *contactWorld) { w.learned(w.now, w.round, theRecords, nil) }, stateBack, "S"},
			{"the worker is verified", learn, stateHere, ""},
		},
		"a slow link": {
			{"heartbeats take 0.9 s", func(w *contactWorld) { w.lag = 900 * ms; w.pass(time.Minute) }, stateHere, ""},
			{"they take longer", func(w *contactWorld) { w.lag = 2100 * ms; w.pass(3 * time.Second) }, stateAway, "DNS"},
		},
		"a heartbeat from before the start comes back": {
			{"it says nothing", func(w *contactWorld) { w.came(w.now, newAway().send(w.now)); w.hangs = true; w.pass(2200 * ms) },
				stateAway, "DNS"},
		},
		"a heartbeat from before does not end it": {
			{"it is on its way", func(w *contactWorld) { w.hangs = true; w.pass(2200 * ms) }, stateAway, "DNS"},
			{"it comes", func(w *contactWorld) { w.came(w.now, uint64(w.left.Sub(w.began.Time))) }, stateAway, "DNS"},
			{"the next one comes", func(w *contactWorld) { w.jump(ms, ms); w.came(w.now, w.send(w.now)) }, stateBack, "DHNS"},
		},
		"the process stands still": {
			{"for a moment", stand(900*ms, 900*ms), stateHere, ""},
			{"for longer", stand(1100*ms, 1100*ms), stateAway, "HNS"},
			{"a return", deliver, stateBack, "HNS"},
			{"all is learned", learn, stateHere, ""},
		},
		"the machine sleeps": {
			{"for an hour", stand(100*ms, time.Hour), stateAway, "DHNS"},
			{"NATS does not deliver, HTTP goes on", hang(1100 * ms), stateAway, "DNS"},
			{"a return", deliver, stateBack, "DHNS"},
			{"the store does not answer", pass(1100 * ms), stateHere, "D"},
		},
		"each method looks": {
			{"after a standstill", func(w *contactWorld) { w.jump(time.Minute, time.Minute); w.send(w.now) }, stateAway, "DHNS"},
		},
		"a reconnect": {
			{"within two seconds", reconnect(1), stateBack, "S"},
			{"the worker is verified", learn, stateHere, ""},
			{"it is noted once", reconnect(1), stateHere, ""},
			{"the registry does not answer", reconnect(2), stateBack, "S"},
			{"for a second", pass(1100 * ms), stateHere, ""},
			{"while it is away", hang(2200 * ms), stateAway, "DNS"},
			{"a new connection", reconnect(3), stateAway, "DNS"},
			{"that delivers", deliver, stateBack, "DHNS"},
			{"and is lost again", hang(2200 * ms), stateAway, "DNS"},
		},
		"the end": {
			{"NATS hangs", hang(3 * time.Second), stateAway, "DNS"},
			{"requests go on", func(w *contactWorld) { w.end(); w.pass(time.Minute) }, stateHere, "D"},
		},
	} {
		w := newContactWorld()
		for _, s := range script {
			s.do(w)
			if got, shut := contact(w.state.Load()), w.shut(); got != s.state || shut != s.shut {
				t.Fatalf("%s, %s: %v, shut %q; want %v, %q", name, s.name, got, shut, s.state, s.shut)
			}
		}
	}
}

// What could not be learned in a second raises an alert, and is tried each second until it succeeds. While it is away
// again, the alert lasts.
func TestAwayIsStale(t *testing.T) {
	t.Parallel()
	w := newContactWorld()
	tries, why := 0, errors.New("unplugged")
	pass := func(d time.Duration, want error) {
		t.Helper()
		for ; d > 0; d -= lookEvery {
			w.did = nil
			w.pass(lookEvery)
			for _, do := range w.did {
				if do.learn[theRecords] {
					tries++
					w.learn(why)
				}
			}
		}
		if err := w.staleErr(w.now.Time); err != want {
			t.Errorf("the alert is %v, want %v", err, want)
		}
	}
	w.hangs = true
	pass(3*time.Second, nil)
	w.hangs = false
	w.beat()
	pass(800*ms, nil)
	pass(9*time.Second, why)
	if tries < 10 || tries > 16 {
		t.Errorf("%d attempts in 10 s", tries)
	}
	w.hangs = true
	pass(3*time.Second, errCutOff)
	w.hangs = false
	w.beat()
	w.step()
	w.learn(nil)
	pass(5*time.Second, nil)
}

// What was learned on a connection that is gone does not count.
func TestAwayLearnsOnTheLastConnection(t *testing.T) {
	t.Parallel()
	w := newContactWorld()
	w.reconnected(w.now, 1)
	round := w.step().round
	w.reconnected(w.now, 2)
	w.learned(w.now, round, theWorker, nil)
	if w.shut() != "S" || !w.step().learn[theWorker] {
		t.Error("the worker counts as verified")
	}
}

// A connection that delivers nothing is made again after 4 s, and then each 10 s. A process that stood still
// first gives it a moment.
func TestAwayReconnects(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*contactWorld){
		"NATS hangs":            func(w *contactWorld) { w.pass(2200 * ms) },
		"a minute stands still": func(w *contactWorld) { w.jump(time.Minute, time.Minute); w.step() },
	} {
		w := newContactWorld()
		w.hangs = true
		begin(w)
		var pauses []time.Duration
		last := w.now
		for range 200 { // 40 s
			if w.did = nil; len(w.did) == 0 {
				w.pass(lookEvery)
			}
			if len(w.did) > 0 && w.did[0].reconnect {
				pauses = append(pauses, w.now.since(last).Round(time.Second))
				last = w.now
			}
		}
		want := []time.Duration{2, 10, 10, 10}
		for i := range want {
			want[i] *= time.Second
		}
		if len(pauses) > 0 && name == "NATS hangs" {
			pauses[0] = pauses[0].Truncate(2 * time.Second) // it was found away a moment before
		}
		if !slices.Equal(pauses, want) {
			t.Errorf("%s: pauses %v, want %v", name, pauses, want)
		}
	}
}

// After it was away, a message may be old until all is read that the others sent meanwhile.
func TestAwaySettles(t *testing.T) {
	t.Parallel()
	w := newContactWorld()
	want := func(what string, settled bool) {
		t.Helper()
		if ok := w.settled(w.now.Time); ok != settled {
			t.Errorf("%s: settled %v", what, ok)
		}
	}
	w.reconnected(w.now, 1)
	want("after a reconnect", true)
	w.learn(nil)
	w.jump(1500*ms, 1500*ms)
	w.tick(w.now)
	want("after a moment of standing still", false)
	w.hangs = true
	w.pass(5 * time.Second)
	want("while NATS hangs", false)
	w.hangs = false
	w.beat()
	want("right after the return", false)
	w.learn(nil)
	w.pass(1800 * ms)
	want("1.8 s later", false)
	w.pass(400 * ms)
	want("2.2 s later", true)
}

// noKeys are those of an installation without opaque tags.
type noKeys struct{ Keys }

func (noKeys) Known(string) *opaque.Permutation { return nil }

// Requests wait at a gate for at most a second. Of too many, the last are refused.
func TestHeldBackIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := borrowing("own")
		c.cfg.MaxWaiting, c.cfg.Installation, c.cfg.Keys = 1, "own", noKeys{}
		c.phase, c.requests = newPhase(), new(tasks)
		c.flakes, c.concealer, c.counts = &flakes{base: c.base}, newConcealer(noKeys{}, nil, nil), &counts{base: c.base}
		c.phase.serving.Store(true)
		c.group.away.begin(at(time.Now()), 0)
		c.group.away.reconnected(at(time.Now()), 1)
		s, began, first := newSnowflakes(c), time.Now(), make(chan error)
		go func() {
			_, err := s.take(t.Context(), "", 1)
			first <- err
		}()
		synctest.Wait()
		if _, err := s.take(t.Context(), "", 1); toError(err).Reason != bus.Overloaded {
			t.Errorf("another one: %v", err)
		}
		err := <-first
		if took := time.Since(began); toError(err).Reason != bus.NoWorkerID || took != gateFor {
			t.Errorf("%v after %v, want %s after %v", err, took, bus.NoWorkerID, gateFor)
		}
		if synctest.Wait(); s.held.Load() != 0 {
			t.Errorf("%d wait", s.held.Load())
		}
	})
}

// A generator that does not know what the others hold releases no worker.
func TestReleaseWhilePeersUnknown(t *testing.T) {
	t.Parallel()
	entry := snowflake.Entry{Version: 1, Record: snowflake.Record{Node: "n", Incarnation: "x", ReservedUntil: 1_700_000_000_000}}
	g := New(Config{Conn: new(nats.Conn), Snowflake: snowflake.Config{Layout: snowflake.DefaultLayout()}})
	g.membership.identity.Store(&Identity{})
	workers := &workerAdmin{g.base, g.flakes, g.findings}
	req := admin.WorkerRelease{Node: "n", ReservedUntil: utc(entry.ReservedUntil)}
	now := entry.ReservedUntil - time.Minute.Milliseconds()
	g.group.away.begin(at(time.Now()), 0)
	if err := workers.keeps(req, entry, now); err != nil {
		t.Errorf("known: %v", err)
	}
	g.group.away.reconnected(at(time.Now().Add(time.Millisecond)), 1)
	g.group.away.connects.Store(0)
	if err := workers.keeps(req, entry, now); toError(err).Reason != bus.NoWorkerID {
		t.Errorf("after a reconnect: %v, want %s", err, bus.NoWorkerID)
	}
}
