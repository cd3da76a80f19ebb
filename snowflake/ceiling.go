package snowflake

// ceilingAhead is how far the ceiling on disk is ahead of the clock, in ms. A restart after a crash rests for
// at most as long. The ceiling is raised when half of it is used, so that no request waits for the disk.
const ceilingAhead = 2000

// ownSaved returns what the file knows if that is this generator's, and else what the file
// will say from now on. known says that the generator had a worker, or may have one.
func (g *Generator) ownSaved() (s Saved, known bool) {
	s, ok := g.cfg.File.Saved()
	id := g.identity
	g.mu.Lock()
	outdated := g.worker.fileOutdated
	g.mu.Unlock()
	if !ok || s.Installation != id.Installation || s.Layout != id.Layout || s.Place != id.Place || s.Node != id.Node {
		return id, false
	}
	if outdated { // the disk failed to save that the worker was lost
		g.forget(&s)
	}
	return s, s.Incarnation != "" || s.Pending != ""
}

// save changes the file.
func (g *Generator) save(change func(*Saved)) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	s, _ := g.ownSaved()
	change(&s)
	err := g.cfg.File.Save(s)
	if err == nil {
		g.mu.Lock()
		g.worker.fileOutdated = false
		g.mu.Unlock()
	}
	return err
}

// raiseCeiling raises the ceiling if half of it is used.
func (g *Generator) raiseCeiling() error {
	g.saving.Lock()
	defer g.saving.Unlock()
	g.mu.Lock()
	w := g.worker.held
	r := g.cfg.Clock()
	g.noteRunningLocked(r)
	if w == nil || g.closed || g.standstill.doubtful() { // another process may use the file too
		g.mu.Unlock()
		return nil
	}
	t := g.cfg.Layout.UnitOf(g.timeLocked(r)) // so that a restart rests no longer with long units
	reserved, ceiling, unconfirmed := w.ReservedUntil, w.ceiling, w.unconfirmed
	g.mu.Unlock()

	want := min(t+ceilingAhead, reserved)
	if want <= ceiling || ceiling-t > ceilingAhead/2 {
		return nil
	}
	s, _ := g.ownSaved()
	s.Ceiling = want
	if !unconfirmed {
		s.ReservedUntil = reserved
	}
	err := g.cfg.File.Save(s)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.worker.noCeiling = err
	if err == nil && g.worker.held == w {
		w.ceiling = want
		wake(g.signals.serve)
	}
	return err
}
