package allocator_test

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// simDriver lets things happen to a world.
type simDriver struct {
	w       *simWorld
	stores  []map[string]allocator.Tag   // backups
	ledgers []map[string]allocator.Entry // and those of the ledger
}

// step lets one thing happen.
func (d *simDriver) step() {
	w := d.w
	n := simPick(w.random, w.nodes...)
	switch w.random.n(20) {
	case 0, 1:
		d.backup()
	case 2, 3, 4:
		w.doing.Go(func() { d.operate(n) })
	case 5, 6:
		w.note("crashed")
		n.crash()
		if w.random.in(2) {
			time.Sleep(w.random.upTo(time.Second))
		}
		n.start(w.random.in(3))
	case 7:
		if w.random.in(2) {
			w.note("cut")
			n.setCut(true)
		} else {
			n.setCut(false)
		}
	case 8, 9, 10:
		if w.goesBack {
			d.goBack()
		}
	case 11:
		if w.ledgerBack && len(d.ledgers) > 0 {
			d.restoreLedger()
		}
	case 12:
		if !w.gentle {
			d.loseStoreOrLedger()
		}
	default:
		if r := n.up(); r != nil && w.random.in(3) {
			r.a.EvictIdle()
			if err := r.a.CheckTroubles(); err != nil {
				w.fail("%s: %v", r.name, err)
			}
		}
	}
}

func (d *simDriver) backup() {
	d.stores = append(d.stores, d.w.database().Snapshot())
	if d.w.ledger != nil {
		d.ledgers = append(d.ledgers, d.w.ledger.Snapshot())
	}
}

func (w *simWorld) database() *allocatortest.Memory {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.db
}

func (d *simDriver) loseStoreOrLedger() {
	w := d.w
	until := time.Now().Add(w.random.upTo(simPick(w.random, 100*time.Millisecond, 4*time.Second)))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.random.in(2) {
		w.awayStore = until
		w.happened["store away"]++
	}
	if w.random.in(2) {
		w.awayLedger = until
		w.happened["ledger away"]++
	}
}

// goBack sets the store back: by a backup, by a replica that takes over, or by SQL.
func (d *simDriver) goBack() {
	w := d.w
	if w.ledgerBack && w.random.in(2) || w.ledger == nil {
		d.quiet()
		defer d.loud()
	}
	backup := w.database().Snapshot()
	if len(d.stores) > 0 {
		backup = simPick(w.random, d.stores...)
	}
	switch kind := w.random.n(4); {
	case kind == 0 && w.ledger != nil && !w.gentle:
		tag, now := simPick(w.random, w.tags...), w.database().Snapshot()
		what := "created again by SQL"
		now[tag] = allocator.Tag{Name: tag, MaxID: 1, Step: 1 + w.random.n(50)}
		if w.random.in(3) {
			what = "deleted by SQL"
			delete(now, tag)
			w.rowDeleted = true
		}
		w.database().Restore(now)
		w.noteBack(w.database(), what)
	case kind == 1 && w.ledger != nil:
		d.split(backup)
	default:
		if w.gentle { // a tag that is missing for a while is refused
			backup = maps.Clone(backup)
			for tag, t := range w.database().Snapshot() {
				if backup[tag].Deleted || backup[tag].MaxID == 0 {
					backup[tag] = t
				}
			}
		}
		w.database().Restore(backup)
		w.noteBack(w.database(), "store restored")
	}
}

// split makes a replica that is behind the primary of some generators, one after the other, and then of all.
func (d *simDriver) split(backup map[string]allocator.Tag) {
	w := d.w
	w.mu.Lock()
	if w.splitting {
		w.mu.Unlock()
		return
	}
	w.splitting = true
	w.mu.Unlock()
	replica := allocatortest.NewMemory()
	replica.Restore(backup)
	w.noteBack(replica, "split")
	w.doing.Go(func() {
		for _, n := range w.nodes {
			sleep(w.ctx, w.random.upTo(300*time.Millisecond))
			w.mu.Lock()
			n.db = replica
			w.mu.Unlock()
			w.expose(false)
		}
		w.mu.Lock()
		w.db, w.splitting = replica, false
		w.mu.Unlock()
	})
}

// quiet waits until all requests and reports that are under way have ended, and keeps new ones away. A
// range that is under way while store and ledger go back is nowhere any more.
func (d *simDriver) quiet() {
	w := d.w
	w.mu.Lock()
	w.frozen = true
	w.mu.Unlock()
	time.Sleep(time.Millisecond)
	for w.live.Load() > 0 {
		time.Sleep(100*time.Millisecond + w.random.upTo(time.Millisecond))
	}
}

func (d *simDriver) loud() {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.frozen = false
}

// restoreLedger sets the ledger back. A store that goes back just then is one failure with it.
func (d *simDriver) restoreLedger() {
	w := d.w
	if w.random.in(2) {
		d.quiet()
		defer d.loud()
	}
	w.note("ledger restored")
	w.ledger.Restore(simPick(w.random, d.ledgers...))
	w.mu.Lock()
	w.floorsLost = true
	clear(w.old)
	w.mu.Unlock()
	w.expose(true)
}

// endFaults checks that all goes well when the faults have ended.
func (d *simDriver) endFaults() {
	w := d.w
	for w.isSplitting() {
		time.Sleep(100 * time.Millisecond)
	}
	w.calm.Store(true)
	w.mu.Lock()
	w.awayStore, w.awayLedger = time.Time{}, time.Time{}
	w.mu.Unlock()
	for _, n := range w.nodes {
		if n.run == nil {
			n.start(false)
		}
		n.setCut(false)
	}
	time.Sleep(8*time.Second + w.random.upTo(time.Second)) // what was under way has ended, and each refill has tried again
	first := w.nodes[0].up()
	if first == nil {
		w.fail("%s does not serve", w.nodes[0].name)
		return
	}
	for _, tag := range w.tags {
		d.settle(first, tag)
	}
	time.Sleep(7 * time.Second)
	w.expectService(true)
	time.Sleep(w.random.upTo(300 * time.Millisecond))
	if w.goesBack && w.ledger != nil && !w.shared {
		d.goBackCalmly()
	}
	for _, n := range w.nodes {
		r := n.up()
		if r == nil {
			w.fail("%s does not serve", n.name)
			continue
		}
		for _, tag := range w.tags {
			for _, size := range []int64{1, 1000, 1, 1} {
				r.take(w.ctx, tag, size)
			}
		}
	}
	time.Sleep(100 * time.Millisecond)
	for _, n := range w.nodes {
		n.run.checkEvents(true)
		if err := n.run.a.CheckTroubles(); err != nil {
			w.fail("%s: %v", n.run.name, err)
		}
	}
}

// expectService says whether requests that begin from now on must be served.
func (w *simWorld) expectService(expected bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calmSince = time.Time{}
	if expected {
		w.calmSince = time.Now()
	}
}

func (w *simWorld) isSplitting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.splitting
}

// settle creates a tag that is missing, and moves max_id up where only an operator may.
func (d *simDriver) settle(r *simRun, tag string) {
	w := d.w
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	err := d.create(ctx, r, tag)
	if err != nil && !errors.Is(err, allocator.ErrExists) {
		w.fail("when all was well again, %s could not be created: %v", tag, err)
	}
	if !w.shared {
		return
	}
	for {
		t, err := r.store.Get(ctx, tag)
		to := t.MaxID
		for _, n := range w.nodes {
			to = max(to, n.run.a.Seen(tag))
		}
		if err == nil {
			t, err = r.store.Update(ctx, tag, allocator.Change{MaxID: &to})
		}
		switch {
		case err == nil:
			d.broadcast(r, t, t.MaxID)
			return
		case !errors.Is(err, allocator.ErrConflict) || ctx.Err() != nil:
			w.fail("when all was well again, max_id of %s could not be moved to %d: %v", tag, to, err)
			return
		}
	}
}

// goBackCalmly sets the store back while there are no other faults: one generator raises the alert, and no
// request is refused. In some worlds all generators are new then, and only the ledger knows.
func (d *simDriver) goBackCalmly() {
	w := d.w
	fresh := !w.gentle && w.random.in(3)
	quiet := fresh || !w.gentle && w.random.in(2)
	ends := w.ledger.Snapshot()
	time.Sleep(2 * time.Second)
	if quiet {
		w.expectService(false)
		d.quiet()
		time.Sleep(1500 * time.Millisecond) // until no record that generators remember is fresh
	}
	backup := w.database().Snapshot()
	back := make(map[string]bool)
	for _, tag := range w.tags {
		t := backup[tag]
		t.MaxID = max(1, ends[tag].End+100-w.random.n(500))
		if fresh {
			t.MaxID = 1
		}
		t.Floor = min(t.Floor, t.MaxID)
		back[tag] = t.MaxID < ends[tag].End // else a request that began before may move it up by itself
		backup[tag] = t
	}
	before := d.alerts()
	if fresh {
		clear(before)
		for _, n := range w.nodes {
			n.crash()
		}
	}
	w.database().Restore(backup)
	w.noteBack(w.database(), "store restored")
	if fresh {
		for _, n := range w.nodes {
			n.start(true)
		}
	}
	if quiet {
		d.loud()
		time.Sleep(2 * time.Second)
		w.expectService(true)
	}
	for _, n := range w.nodes {
		for _, tag := range w.tags {
			n.up().take(w.ctx, tag, 1000)
		}
	}
	time.Sleep(time.Second)
	after := d.alerts()
	for _, tag := range w.tags {
		// Claims that were under way at that moment move the ledger up afterwards.
		if n := after[tag] - before[tag]; quiet && n > 1 || back[tag] && n == 0 {
			w.fail("%d generators raised an alert for one restore of %s (went back: %v, all are new: %v)", n, tag, back[tag], fresh)
		}
	}
}

// alerts counts the alerts of each tag that max_id was moved up.
func (d *simDriver) alerts() map[string]int {
	alerts := make(map[string]int)
	for _, n := range d.w.nodes {
		n.run.mu.Lock()
		for tag, count := range n.run.alerts {
			alerts[tag] += count
		}
		n.run.mu.Unlock()
	}
	return alerts
}
