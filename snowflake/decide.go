package snowflake

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// step is what a generator does next to get a worker, or to hold it. [situation.decide] draws when.
type step int

const (
	wait      step = iota // try again later
	extend                // the reservation of the worker that it holds
	useFile               // hold the worker that the file names, because the registry is unavailable
	takeOwn               // write a new incarnation into its own record
	release               // its own record, because the configuration wants another worker
	abandon               // its own record, because the last run's clock was ahead
	lose                  // the worker that the file names, because the record is not its own any more
	takeEnded             // write into a record with an ended reservation
	add                   // make a record for a worker that has none
)

// situation is all that the next step depends on.
type situation struct {
	cfg       *Config
	confirmed bool  // it holds a worker that the registry has confirmed
	t         int64 // time that may be reserved now
	wall      int64 // what the wall clock says
	starting  bool  // no worker was held yet since Run began
	agreed    bool  // when the clock was compared last, there were peers that agreed
	saved     Saved // what the file knows
	known     bool  // that is a worker of this generator, or may be one
	entries   []Entry
	away      error // why the registry did not answer; nil: it did
}

// decide says which step is next, and changes nothing. entry is the record of the step. err says why it waits.
//
//	it holds a confirmed worker ── extend
//	the registry answers ┬ own record ┬ the clock is behind its times ── wait; abandon, if peers agree with the clock
//	                     │            ├ the worker is in range ── takeOwn
//	                     │            └ else ── release
//	                     ├ the file names a worker ── lose
//	                     └ else ── takeEnded, add or wait
//	it does not ── useFile, if that names a worker and the clock is not behind its times; else wait
//
// A worker whose reservation has ended stays with its holder until another generator takes it over.
func (s *situation) decide() (next step, entry Entry, err error) {
	own, has := s.own()
	behind := s.behind()
	switch {
	case s.confirmed:
		return extend, entry, nil
	case s.away != nil && (!s.known || errors.Is(s.away, ErrRefused)):
		return wait, entry, s.away
	case behind > s.cfg.MaxClockWait.Milliseconds() && has && s.agreed:
		return abandon, own, nil
	case behind > 0:
		return wait, entry, s.behindError(behind)
	case s.away != nil:
		return useFile, entry, s.away
	case has && s.cfg.inRange(own.Worker):
		return takeOwn, own, nil
	case has:
		return release, own, nil
	case s.known:
		return lose, entry, nil
	case !s.cfg.PeersKnown():
		return wait, entry, errors.New("it is not known yet which workers the other generators hold")
	}
	ended, taken := s.ended()
	switch {
	case len(ended) > 0: // many may start at once, and should not all want the same one
		return takeEnded, ended[s.cfg.random(int64(len(ended)))], nil
	case taken <= s.cfg.LastWorker-s.cfg.FirstWorker:
		return add, entry, nil
	}
	return wait, entry, s.allTaken()
}

// own returns the record that this generator wrote before it was started. A peer that holds it has a clone of the file.
func (s *situation) own() (Entry, bool) {
	for _, e := range s.entries {
		if e.Incarnation != "" && (e.Incarnation == s.saved.Incarnation || e.Incarnation == s.saved.Pending) {
			return e, s.known && !s.cfg.HeldByPeer(e.Worker)
		}
	}
	return Entry{}, false
}

// behind is how far the clock is behind this generator's last time on record at a start, in ms; 0: it is not.
func (s *situation) behind() int64 {
	if !s.starting {
		return 0
	}
	return max(0, s.recorded()-s.wall)
}

// recorded is a time that the clock had reached in the last run. The ceiling in the file was at most ceilingAhead ahead
// of it. If one slot of the file could not be read, slack was added to it. The file does not say how much of this
// there is, so all of it is taken off. So no restart after a crash is refused, or waits. The registry, if it answers,
// may know better.
func (s *situation) recorded() int64 {
	recorded := s.saved.Ceiling - restAtStart.Milliseconds()
	if own, has := s.own(); has {
		recorded = max(recorded, own.Reported)
	}
	return recorded
}

func (s *situation) behindError(behind int64) error {
	err := fmt.Errorf("%w: it says %s, and this generator's last time on record is %s; no worker is used until the clock "+
		"has caught up", &BackwardsError{millis(behind)}, text(s.wall), text(s.recorded()))
	if behind > s.cfg.MaxClockWait.Milliseconds() {
		err = fmt.Errorf("%w. Set the clock right, or start as a new node, which takes another worker (--node NEWNAME)", err)
	}
	return err
}

// ended returns the records in range that may be taken over, and how many there are in range.
func (s *situation) ended() (ended []Entry, taken int64) {
	choice := s.cfg.choice()
	for _, e := range s.entries {
		if s.cfg.inRange(e.Worker) {
			taken++
		}
		if e.ReservedUntil <= s.t && choice.Allows(e.Worker) {
			ended = append(ended, e)
		}
	}
	return ended, taken
}

// allTaken is the error of a generator for which no worker is left.
func (s *situation) allTaken() error {
	var holders []string
	slices.SortFunc(s.entries, func(x, y Entry) int { return cmp.Compare(x.ReservedUntil, y.ReservedUntil) })
	for _, e := range s.entries {
		if !s.cfg.inRange(e.Worker) {
			continue
		}
		if len(holders) == listed {
			holders = append(holders, "…")
			break
		}
		holders = append(holders, fmt.Sprintf("%d by %s until %s", e.Worker, e.Node, text(e.ReservedUntil)))
	}
	return fmt.Errorf("all workers from %d to %d are held: %s; a worker can be taken over when its reservation ends",
		s.cfg.FirstWorker, s.cfg.LastWorker, strings.Join(holders, ", "))
}

func (cfg *Config) inRange(worker int64) bool {
	return cfg.FirstWorker <= worker && worker <= cfg.LastWorker
}

func (cfg *Config) choice() Choice {
	return Choice{cfg.FirstWorker, cfg.LastWorker, cfg.HeldByPeerLately}
}
