package allocator_test

import (
	"context"
	"errors"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// simChaos strikes a world, and has its operators.
type simChaos struct {
	w      *simWorld
	random *simRandom
	forgot time.Time // when a store forgot something last
	which  string    // and which: db or js
	dbs    []map[string]allocator.Row
	states []map[string]allocator.Stored // of the records, since they were lost
}

// strike lets generators stand still, be cut off and crash, and stores forget, until the context is done.
func (c *simChaos) strike(ctx context.Context) {
	w, random := c.w, c.random
	for sleep(ctx, 300*time.Millisecond+random.upTo(1500*time.Millisecond)) == nil && !w.failed() {
		c.backup()
		n := simPick(random, w.nodes...)
		switch random.n(6) {
		case 0, 1:
			c.set(&n.frozen, random.upTo(6*time.Second), "frozen")
		case 2, 3:
			c.set(&n.cut, random.upTo(6*time.Second), "cut")
		case 4:
			w.note("crashed")
			n.crash()
			n.start()
		default:
			c.forget()
		}
	}
}

func (c *simChaos) set(t *time.Time, d time.Duration, what string) {
	c.w.note(what)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	*t = time.Now().Add(d)
}

func (c *simChaos) backup() {
	c.dbs = append(c.dbs, c.w.db.Snapshot())
	c.states = append(c.states, c.w.records.Snapshot())
}

// forget sets a store back. Both stores may not be behind at once, with nobody who knows better.
func (c *simChaos) forget() {
	w, which, gap := c.w, c.w.faults, 3*time.Second
	if w.faults == "both" {
		which, gap = map[string]string{"": "db", "db": "js", "js": "db"}[c.which], 30*time.Second
		for _, n := range w.nodes {
			if n.isCut() || n.isFrozen() {
				return
			}
		}
	}
	if time.Since(c.forgot) < gap {
		return
	}
	switch {
	case which == "db":
		w.note("database restored")
		w.trace("the database goes back")
		w.db.Restore(c.dbs[max(0, int64(len(c.dbs))-1-c.random.n(15))])
	case which == "js":
		c.loseRecords()
	default:
		return
	}
	c.forgot, c.which = time.Now(), which
}

// loseRecords sets the records back. The strict tag is moved up by hand, because only an operator may go on with it.
func (c *simChaos) loseRecords() {
	w := c.w
	strict, _ := w.records.Load(context.Background(), simStrict)
	for _, n := range w.nodes {
		strict.MaxID = max(strict.MaxID, n.run.a.Seen(simStrict))
	}
	w.mu.Lock()
	w.recordsBack = time.Now()
	clear(w.old)
	w.floors = nil // a record that was set back may have forgotten them
	w.mu.Unlock()
	switch kind := c.random.n(3); {
	case kind == 0 && w.numbers:
		w.note("records lost")
		w.trace("the records are lost")
		c.states = nil
		w.records.Lose()
		w.records.SetErr(allocator.ErrTagsLost)
		w.later(c.random.upTo(8*time.Second), func() { w.records.SetErr(nil) })
	case kind == 1 && w.numbers:
		w.note("record damaged")
		w.trace("the record of %s is damaged", simTrend)
		w.records.Spoil(simTrend, allocator.ErrDamaged)
		w.lookWhatIsForgotten()
		return
	default:
		w.note("records restored")
		w.trace("the records go back")
		at := max(0, int64(len(c.states))-1-c.random.n(8))
		w.records.Restore(c.states[at])
		c.states = c.states[:at+1]
		w.mu.Lock()
		w.repeats = w.repeats || !w.numbers
		w.mu.Unlock()
	}
	w.put(strict.Tag)
	w.lookWhatIsForgotten()
}

// lookWhatIsForgotten notes when no store knows any more how far simTrend was: SQL has deleted the row before leaf_mark
// had it, and the record was set back. Then a generator that is silent may be the only one that knows.
func (w *simWorld) lookWhatIsForgotten() {
	row, _ := w.db.Peek(context.Background(), simTrend)
	s, _ := w.records.Load(context.Background(), simTrend)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgotten = w.forgotten || w.numbers && max(row.MaxID, row.Mark, s.MaxID) < w.claimed
}

// operators change tags, and run SQL by hand, until the context is done.
func (c *simChaos) operators(ctx context.Context) {
	w, random := c.w, newSimRandom(uint64(c.random.n(1<<40)), 4)
	for sleep(ctx, random.upTo(1500*time.Millisecond)) == nil && !w.failed() {
		n := simPick(random, w.nodes...)
		if r := n.current(); r != nil && !n.isCut() && !n.isFrozen() && !r.isAway() {
			what := simPick(random, "set", "set", "set", "delete", "create", "create", "create")
			w.doing.Go(func() { r.command(what, random) })
		}
		if w.numbers && random.in(7) {
			c.sql(random)
		}
	}
}

// sql changes the table by hand: forward only, unless the records can be lost too.
func (c *simChaos) sql(random *simRandom) {
	w := c.w
	row, _ := w.db.Peek(context.Background(), simTrend)
	s, _ := w.records.Load(context.Background(), simTrend)
	switch what := simPick(random, "forward", "delete", "insert"); {
	case what == "forward" && row.MaxID != 0:
		row.MaxID += random.n(200)
	case what == "delete" && row.MaxID != 0:
		w.note("deleted by SQL")
		w.trace("SQL deletes the row")
		w.db.DeleteRow(simTrend)
		w.lookWhatIsForgotten()
		return
	case what == "insert" && row.MaxID == 0:
		w.note("inserted by SQL")
		row.MaxID, row.Step = 1+random.n(max(s.MaxID, 1)), 40
	default:
		return
	}
	if w.faults == "js" || w.faults == "both" {
		w.mu.Lock()
		row.MaxID = max(row.MaxID, w.claimed)
		w.mu.Unlock()
	}
	w.trace("SQL sets the row to %d", row.MaxID)
	w.db.SetRow(row)
}

// command is a command of an operator. After the write, all other generators must confirm the change, for at most
// three seconds. Those that did not are named, and are expected to come back through the gate.
func (r *simRun) command(what string, random *simRandom) {
	w := r.n.w
	begun := time.Now()
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
	defer cancel()
	var done allocator.Stored
	var err error
	switch what {
	case "set":
		to := r.a.Seen(simTrend) + random.n(100)
		_, done, err = r.a.Change(ctx, simTrend, allocator.Change{MaxID: &to}, true)
	case "delete":
		done, err = r.a.Delete(ctx, simTrend)
	default:
		first := int64(1)
		if random.in(2) { // the only way out of a damaged record
			first = 2
		}
		done, err = r.a.Create(ctx, allocator.Tag{Name: simTrend, MaxID: first, Step: 40}, 0, false)
	}
	if errors.Is(err, allocator.ErrUncertain) {
		w.note("uncertain command")
	}
	if err != nil {
		return
	}
	w.note("command " + what)
	confirmed := map[string]bool{r.name: true}
	everybody := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, n := range w.nodes {
			if n.run == nil || !confirmed[n.run.name] {
				return false
			}
		}
		return true
	}
	for rounds := 12; rounds > 0 && !everybody(); rounds-- {
		for _, o := range w.others(r.n) {
			if random.in(50) {
				continue
			}
			w.later(random.upTo(5*time.Millisecond), func() {
				applied := false
				o.receive(r, func() { applied = o.a.Push(done).Floor >= done.Below() })
				if !applied || random.in(50) {
					return
				}
				time.Sleep(random.upTo(5 * time.Millisecond))
				if !r.n.isCut() && !o.n.isCut() {
					w.mu.Lock()
					confirmed[o.name] = true
					w.mu.Unlock()
				}
			})
		}
		for i := 0; i < 25 && !everybody(); i++ {
			time.Sleep(10 * time.Millisecond)
		}
	}
	r.n.thaw()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if r.n.run != r || now.Sub(r.echo) > 1500*time.Millisecond || w.recordsBack.After(begun) {
		return // it was cut off itself, or the records have forgotten the change
	}
	f := &simFloor{tag: simTrend, below: done.Below(), at: now, exempt: make(map[string]bool)}
	for _, n := range w.nodes {
		if n.run != nil && !confirmed[n.run.name] {
			f.exempt[n.run.name] = true
			w.happened["named"]++
		}
	}
	w.trace("%s confirms: no ID of %s below %d, but of %v", r.name, simTrend, f.below, f.exempt)
	w.floors = append(w.floors, f)
	w.floors = w.floors[max(len(w.floors)-20, 0):]
}
