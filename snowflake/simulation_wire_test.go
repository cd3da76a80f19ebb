//go:build !race

package snowflake_test

import (
	"context"
	"slices"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// disk is the disk of a process, which may crash before, amid and after each
// write, and whose other goroutines run meanwhile.
type disk struct {
	*snowflaketest.Disk
	p *process
}

func (d disk) WriteAt(b []byte, off int64) (int, error) {
	d.p.crashInWrite(120)
	if d.p.w.chance(120) {
		d.Disk.Fail(d.p.w.random, 1)
		d.Disk.WriteAt(b, off)
		d.p.crashInWrite(1)
	}
	n, err := d.Disk.WriteAt(b, off)
	d.p.crashInWrite(120)
	return n, err
}

func (d disk) Sync() error {
	p := d.p
	if p.w.chance(10) && !p.writing && !p.stalled {
		p.note("other things amid a write")
		p.writing = true
		for range 1 + p.w.random.IntN(10) {
			if p.w.chance(2) && p.runs() {
				p.request(p.w.count())
			}
			p.w.step()
		}
		p.writing = false
		p.survive()
	}
	err := d.Disk.Sync()
	p.crashInWrite(120)
	return err
}

// wire is the way of a process to the registry of its world.
type wire struct{ p *process }

func (r wire) List(context.Context) ([]snowflake.Entry, error) {
	w := r.p.w
	r.p.keeper.pause()
	entries := w.list()
	switch {
	case r.p.image && r.p.owner.p == r.p: // a start from the file alone would be one of a clone
	case w.turn < w.away || w.chance(w.faulty):
		return nil, errNoAnswer
	case w.old != nil && w.chance(10):
		entries = w.old
		r.p.note("old list")
	case w.chance(5):
		w.old = entries
	}
	r.p.keeper.pause()
	return slices.Clone(entries), nil
}

func (r wire) Add(_ context.Context, rec snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	return call(r.p, func() (snowflake.Entry, error) { return r.p.w.add(r.p.owner, rec, c) })
}

func (r wire) Put(_ context.Context, rec snowflake.Record, version uint64) (uint64, error) {
	return call(r.p, func() (uint64, error) { return r.p.w.put(r.p.owner, rec, version) })
}

// call makes a write, of which the effect and the answer may each come late, or
// not at all.
func call[T any](p *process, write func() (T, error)) (T, error) {
	var none T
	w := p.w
	p.keeper.pause()
	switch {
	case w.turn < w.away || w.chance(w.faulty):
		p.note("answer lost, not done")
		return none, errNoAnswer
	case w.chance(w.faulty):
		w.late = append(w.late, func() {
			if _, err := write(); err == nil {
				p.note("written late")
			}
		})
		return none, errNoAnswer
	}
	answer, err := write()
	p.keeper.pause()
	if w.chance(w.faulty) {
		p.note("answer lost, done")
		return none, errNoAnswer
	}
	return answer, err
}
