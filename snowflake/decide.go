package snowflake

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// listed is how many holders an error lists.
const listed = 8

// step is what a generator does next to get a worker, or to hold it. [situation.decide] draws when.
type step int

const (
	wait    step = iota // try again later
	extend              // the reservation of the worker that it holds
	useFile             // hold the worker that the file names, because the registry is unavailable
	take                // reserve a worker: by a new incarnation in a record, or by a record for a worker that has none
	abandon             // its own record: it takes another worker
	lose                // the worker that the file names, because the record is not its own any more
)

// situation is all that the next step depends on.
type situation struct {
	cfg      *Config
	held     Entry   // of the worker that it holds; version 0: the registry must be asked
	starting bool    // no worker was held yet since Run began
	stopping bool    // Run has ended
	peers    []int64 // how far the peers' clocks are ahead, at a start
	t        int64   // time that may be reserved now
	wall     int64   // what the wall clock says
	saved    Saved   // what the file knows
	entries  []Entry
	away     error // why the registry did not answer; nil: it did
}

// decide says which step is next, and changes nothing. entry is the record of the step. why says
// why it waits, or does not take its own worker.
//
//	it holds a confirmed worker ── extend
//	its clock differs from the peers' at a start ── wait
//	the registry answers ┬ the record that it holds ── extend
//	                     ├ own record ┬ the clock is behind its times ── wait, or abandon
//	                     │            ├ the worker is in range ── take
//	                     │            └ else ── abandon
//	                     ├ the file names a worker ── lose
//	                     └ else ── take one whose reservation has ended, or a new one; else wait
//	it does not ┬ the clock is behind its times ── wait
//	            ├ a peer holds the worker that the file names ── lose
//	            └ else ── useFile, if the worker is reserved and in range, peers known; else wait
//
// A worker whose reservation has ended stays with its holder until another generator takes it over.
func (s *situation) decide() (next step, entry Entry, why error) {
	own, has := s.own()
	known := s.saved.Incarnation != "" || s.saved.Pending != ""
	behind := s.behind()
	switch {
	case s.held.Version != 0:
		return extend, s.held, nil
	case s.differs():
		return wait, entry, s.differsError()
	case s.away != nil && (!known || errors.Is(s.away, ErrRefused)):
		return wait, entry, s.away
	case behind > s.cfg.MaxClockWait.Milliseconds() && has && s.cfg.near(s.peers) > 0:
		return abandon, own, errors.New("in the last run the clock was ahead of the time that it and most others have now")
	case behind > 0:
		return wait, entry, s.behindError(behind)
	case s.away != nil:
		return s.withoutRegistry()
	case has && own.Incarnation == s.held.Incarnation:
		return extend, own, nil
	case has && s.cfg.inRange(own.Worker):
		return take, own, nil
	case has:
		return abandon, own, errors.New("the configuration no longer allows this worker")
	case known:
		return lose, entry, nil
	case s.stopping:
		return wait, entry, errors.New("the worker was lost")
	case !s.cfg.PeersKnown():
		return wait, entry, errors.New("it is not known yet which workers the other generators hold")
	}
	ended, taken := s.ended()
	switch {
	case len(ended) > 0: // many may start at once, and should not all want the same one
		entry = ended[s.cfg.random(int64(len(ended)))]
		entry.Incarnation, entry.Acquired = "", 0
		return take, entry, nil
	case taken <= s.cfg.LastWorker-s.cfg.FirstWorker:
		return take, Entry{Record: Record{Worker: -1}}, nil
	}
	return wait, entry, s.allTaken()
}

// withoutRegistry decides about the worker that the file names while the registry is unavailable.
func (s *situation) withoutRegistry() (step, Entry, error) {
	e := Entry{Record: Record{Worker: s.saved.Worker, ReservedUntil: s.saved.ReservedUntil, Reported: s.t}}
	switch {
	case e.Worker >= 0 && s.cfg.HeldByPeer(e.Worker): // it has a clone of the file
		return lose, e, nil
	case s.t < e.ReservedUntil && s.cfg.inRange(e.Worker) && s.cfg.PeersKnown():
		return useFile, e, s.away
	}
	return wait, e, s.away
}

// own returns the record that this generator wrote. A peer that holds it has a clone of the file.
func (s *situation) own() (Entry, bool) {
	for _, e := range s.entries {
		written := e.Incarnation == s.saved.Incarnation || e.Incarnation == s.saved.Pending
		if e.Incarnation != "" && written && (e.Worker == s.saved.Worker || s.saved.Worker < 0) {
			return e, !s.cfg.HeldByPeer(e.Worker)
		}
	}
	return Entry{}, false
}

// differs reports whether the clock differs from most of the peers' clocks. Half of them are enough
// for a start: with its own clock, that is more than half.
func (s *situation) differs() bool { return 2*s.cfg.near(s.peers) < len(s.peers) }

func (s *situation) differsError() error {
	ahead, side := Median(s.peers), "ahead of"
	if ahead > 0 {
		side = "behind"
	}
	return fmt.Errorf("the clock differs from the other generators' clocks: it says %s, %v %s the %s that is their "+
		"median (%d of %d agree within %v, --max-clock-skew); no worker is used until they agree. Set this machine's "+
		"clock right; if it is right, set theirs",
		text(s.wall), duration(ahead).Abs(), side, text(s.wall+ahead), s.cfg.near(s.peers), len(s.peers),
		s.cfg.MaxClockSkew)
}

// skewed is the event of a clock that keeps the generator from using its worker; nil: it does not.
func (s *situation) skewed() *ClockSkewed {
	switch {
	case s.differs():
		return &ClockSkewed{Now: s.wall, Peers: s.wall + Median(s.peers), Threshold: s.cfg.MaxClockSkew.Milliseconds()}
	case s.behind() > s.cfg.MaxClockWait.Milliseconds():
		return &ClockSkewed{Now: s.wall, Recorded: s.recorded(), Threshold: s.cfg.MaxClockWait.Milliseconds()}
	}
	return nil
}

// behind is how far the clock is behind this generator's last time on record at a start, in ms; 0:
// it is not.
func (s *situation) behind() int64 {
	if !s.starting {
		return 0
	}
	return max(0, s.recorded()-s.wall)
}

// recorded is a time that the clock had reached in the last run. The ceiling in the file was at
// most ceilingAhead ahead of it. If one slot of the file could not be read, slack was added to it.
// The file does not say how much of this there is, so all of it is taken off. So no restart after a
// crash is refused, or waits. The registry, if it answers, may know better.
func (s *situation) recorded() int64 {
	recorded := s.saved.Ceiling - restAtStart
	if own, has := s.own(); has {
		recorded = max(recorded, own.Reported)
	}
	return recorded
}

func (s *situation) behindError(behind int64) error {
	err := fmt.Errorf("%w: it says %s, and this generator's last time on record is %s; no worker is used until the clock "+
		"has caught up", &BackwardsError{duration(behind)}, text(s.wall), text(s.recorded()))
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

// agrees reports whether a clock that is ahead by so much is as right as this one.
func (cfg *Config) agrees(ahead int64) bool {
	most := cfg.MaxClockSkew.Milliseconds()
	return -most <= ahead && ahead <= most
}

// near is how many of the peers' clocks agree with this generator's.
func (cfg *Config) near(peers []int64) (n int) {
	for _, ahead := range peers {
		if cfg.agrees(ahead) {
			n++
		}
	}
	return n
}

func (cfg *Config) inRange(worker int64) bool {
	return cfg.FirstWorker <= worker && worker <= cfg.LastWorker
}

func (cfg *Config) choice() Choice {
	return Choice{cfg.FirstWorker, cfg.LastWorker, cfg.HeldByPeerLately}
}
