package allocator_test

import (
	"context"
	"errors"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// operate is one command of an operator, on one generator.
func (d *simDriver) operate(n *simNode) {
	w := d.w
	r := n.up()
	if r == nil {
		return
	}
	tag, kind := simPick(w.random, w.tags...), w.random.n(6)
	for range 4 {
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
		err := d.command(ctx, r, tag, kind)
		cancel()
		if !errors.Is(err, allocator.ErrUncertain) {
			return
		}
		w.note("uncertain command")
	}
}

func (d *simDriver) command(ctx context.Context, r *simRun, tag string, kind int64) error {
	w := d.w
	switch {
	case kind < 2:
		t, err := r.store.Get(ctx, tag)
		if err != nil {
			return err
		}
		to := t.MaxID + w.random.n(300)
		t, err = r.store.Update(ctx, tag, allocator.Change{MaxID: &to})
		if err == nil {
			w.note("max_id set")
			d.broadcast(r, t, t.MaxID)
		}
		return err
	case kind < 4:
		step := 1 + w.random.n(50)
		t, err := r.store.Update(ctx, tag, allocator.Change{Step: &step})
		if err == nil {
			d.broadcast(r, t, 0)
		}
		return err
	case kind == 4 && !w.gentle:
		t, err := r.store.Delete(ctx, tag, r.a.Seen(tag))
		if err == nil {
			w.note("deleted")
			d.broadcast(r, t, t.MaxID)
		}
		return err
	default:
		return d.create(ctx, r, tag)
	}
}

func (d *simDriver) create(ctx context.Context, r *simRun, tag string) error {
	from := max(1, r.a.Seen(tag)) + d.w.random.n(2)*d.w.random.n(500)
	t, err := r.store.Create(ctx, allocator.Tag{Name: tag, MaxID: from, Step: 1 + d.w.random.n(50)})
	if err == nil {
		d.w.note("created")
		r.a.Apply(t)
	}
	return err
}

// broadcast brings a changed tag to all generators that hear it. Then the floor is confirmed to the operator.
func (d *simDriver) broadcast(r *simRun, t allocator.Tag, floor int64) {
	w := d.w
	w.mu.Lock()
	var hear []*simRun
	for _, n := range w.nodes {
		if n.run != nil && !n.cut {
			hear = append(hear, n.run)
		}
	}
	w.mu.Unlock()
	r.a.Apply(t)
	for _, other := range hear {
		other.a.Apply(t)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if floor > 0 {
		w.confirmed[t.Name] = append(w.confirmed[t.Name], simConfirmed{floor, time.Now()})
		w.trace("confirmed: no ID of %s below %d", t.Name, floor)
	}
}
