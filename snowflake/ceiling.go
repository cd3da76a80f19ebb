package snowflake

import "errors"

// ceilingAhead is how far the ceiling on disk is ahead of the clock, in ms: how
// long a restart after a crash has to rest at most. It is raised when half of it
// is used, so that no request waits for the disk.
const ceilingAhead = 2000

// own returns what the file knows, if that is this generator's, and else what
// it is to say from now on. known says that it had a worker, or may have one.
func (g *Generator) own() (s Saved, known bool) {
	s, ok := g.cfg.File.Saved()
	b := g.binding
	g.mu.Lock()
	forgotten := g.forgotten
	g.mu.Unlock()
	if !ok || s.Installation != b.Installation || s.Layout != b.Layout || !s.At(b.Place) || s.Node != b.Node {
		return b, false
	}
	s.Place = b.Place // an older release saved only the inode
	if forgotten {    // the disk failed to take that in
		g.forget(&s)
	}
	return s, s.Incarnation != "" || s.Pending != ""
}

// save changes the file.
func (g *Generator) save(change func(*Saved)) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	s, _ := g.own()
	change(&s)
	err := g.cfg.File.Save(s)
	if err == nil {
		g.mu.Lock()
		g.forgotten = false
		g.mu.Unlock()
	}
	return err
}

// intruder returns an error if advance found that another process has written to the
// file; nil: it did not.
func (g *Generator) intruder() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if errors.Is(g.noCeiling, ErrNotAlone) {
		return g.noCeiling
	}
	return nil
}

// advance raises the ceiling if it is time to.
func (g *Generator) advance() error {
	g.saving.Lock()
	defer g.saving.Unlock()
	g.mu.Lock()
	l, closed := g.lease, g.closed
	r := g.cfg.Clock()
	g.ranLocked(r)
	if l == nil || closed || g.still.doubtful() { // another process may use the file too
		g.mu.Unlock()
		return nil
	}
	t := g.guard.at(r, g.seq.ms)
	held, ceiling, unconfirmed := l.held(), l.ceiling, l.unconfirmed
	g.mu.Unlock()

	want := min(t+ceilingAhead, held.ReservedUntil)
	if want <= ceiling || ceiling-t > ceilingAhead/2 {
		return nil
	}
	s, _ := g.own()
	s.Ceiling = want
	if !unconfirmed {
		s.ReservedUntil = held.ReservedUntil
	}
	err := g.cfg.File.Save(s)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noCeiling = err
	if err == nil && g.lease == l {
		l.ceiling = want
		signal(g.wake)
	}
	return err
}
