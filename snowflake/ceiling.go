package snowflake

// ceilingAhead is how far the ceiling on disk is ahead of the clock, in ms. A restart after a crash
// rests for at most as long. The ceiling is raised when half of it is used, so that no request
// waits for the disk.
const ceilingAhead = 2000

// forget makes the file say that there is no worker. What was issued under any worker stays
// below the ceiling, because the same worker may be taken again.
func (s *Saved) forget() { s.Worker, s.Incarnation, s.Pending, s.ReservedUntil = -1, "", "", 0 }

// save changes what the file must say, and writes it. The change counts at once, also if the disk
// fails. So a worker is lost even while the file still names it.
func (g *Generator) save(change func(*Saved)) error {
	g.mu.Lock()
	change(&g.worker.saved)
	g.mu.Unlock()
	return g.write()
}

// write writes what the file must say.
func (g *Generator) write() error {
	g.saving.Lock()
	defer g.saving.Unlock()
	g.mu.Lock()
	s := g.worker.saved
	g.mu.Unlock()
	return g.cfg.File.Save(s)
}

// raiseCeiling raises the ceiling if half of it is used.
func (g *Generator) raiseCeiling() error {
	g.mu.Lock()
	w, s := g.worker.held, &g.worker.saved
	r := g.cfg.Clock()
	g.noteRunningLocked(r)
	if w == nil || g.closed || g.standstill.doubtful() { // another process may use the file too
		g.mu.Unlock()
		return nil
	}
	t := g.cfg.Layout.UnitOf(g.timeLocked(r)) // so that a restart rests no longer with long units
	want := min(t+ceilingAhead, w.ReservedUntil)
	if want <= w.ceiling || w.ceiling-t > ceilingAhead/2 {
		g.mu.Unlock()
		return nil
	}
	s.Ceiling = want
	if w.Version != 0 {
		s.ReservedUntil = w.ReservedUntil
	}
	g.mu.Unlock()
	err := g.write()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.worker.noCeiling = err
	if err == nil && g.worker.held == w {
		w.ceiling = want
		wake(g.signals.serve)
	}
	return err
}
