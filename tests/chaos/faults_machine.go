package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/chaos/programs"
)

var (
	// A generator that has ended may lack its last marks, if its disk did not take them (docs/guarantees.md). It needs
	// them after a loss of records.
	besideDisk = []string{harmsJetStream, harmsFolders}
	// If the clock of its owner was ahead, a worker must not be released (docs/guarantees.md).
	besideClock = []string{harmsRegistry}
)

// machineFaults are about clocks and disks. Only one clock is wrong at a time: generators compare theirs, so with two
// of four it would not be known which are right.
var machineFaults = []*fault{
	{
		name: "disk-full", about: "the disk of a generator is full for up to 15 s", weight: 2,
		touches: besideDisk,
		strike:  func(s *strike) { s.disk(programs.Full, 15*time.Second, s.machine().process) },
	},
	{
		name: "disk-full-start", about: "a generator is started while its disk is full", weight: 1,
		touches: besideDisk,
		strike: func(s *strike) {
			m := s.machine()
			m.end(s)
			m.control.Disk(programs.Full)
			m.start()
			s.last(time.Second, 8*time.Second)
			m.control.Disk(programs.Fine)
		},
	},
	{
		name: "disk-slow", about: "each write of a generator takes 250 ms longer, for up to 20 s", weight: 2,
		touches: besideDisk,
		strike: func(s *strike) {
			s.disk(programs.Slow(250*time.Millisecond), 20*time.Second, s.machine().process)
		},
	},
	{
		name: "disk-hang", about: "each write of a generator hangs, for up to 10 s", weight: 1,
		touches: besideDisk,
		strike:  func(s *strike) { s.disk(programs.Slow(time.Hour), 10*time.Second, s.machine().process) },
	},
	{
		// docs/operate.md describes the embedded server. Another one does not end by itself: its operator restarts it.
		name: "nats-disk-full", about: "the disk of a NATS server is full for up to 15 s, then it is restarted", weight: 2,
		servers: "joined", touches: besideDisk,
		strike: func(s *strike) {
			o := s.server()
			s.disk(programs.Full, 15*time.Second, o.process)
			o.stop()
			o.start()
		},
	},
	{
		name: "nats-disk-slow", about: "each write of a NATS server takes 250 ms longer, for up to 20 s", weight: 2,
		servers: "joined",
		strike: func(s *strike) {
			s.disk(programs.Slow(250*time.Millisecond), 20*time.Second, s.server().process)
		},
	},
	{
		// For less than 10 s: then a generator that hears no other one trusts its clock, and waits for the right time later.
		name: "clock-ahead", about: "the clock of a generator is ahead by seconds to hours for up to 9 s", weight: 2,
		harms: []string{harmsClocks}, touches: besideClock,
		strike: func(s *strike) { s.clock(s.wrong(), s.machine().process) },
	},
	{
		name: "clock-behind", about: "the clock of a generator is behind by seconds to hours for up to 9 s", weight: 2,
		harms: []string{harmsClocks}, touches: besideClock,
		strike: func(s *strike) { s.clock(-s.wrong(), s.machine().process) },
	},
	{
		// If it hears no other generator, it does not notice that (docs/guarantees.md). Then its snowflakes have the wrong
		// time, and when the clock is right again, it refuses them until then. The remedy is that of docs/snowflakes.md,
		// "Clocks".
		name: "clock-ahead-start", about: "a generator starts with a clock that is ahead; later it starts with a right one",
		weight: 1, harms: []string{harmsClocks}, touches: besideClock,
		strike: func(s *strike) {
			m, by := s.machine(), s.wrong()
			if by > 4*time.Second { // beyond the end of the run, where another owner of the worker cannot repeat its IDs
				by += 24 * time.Hour
			}
			m.end(s)
			m.setClock(by)
			m.start()
			s.last(time.Second, 10*time.Second)
			m.setClock(0)
			s.last(0, 3*time.Second)
			if _, why := m.readyz(); by > 4*time.Second && strings.Contains(why, snowflake.ErrClockBackwards.Error()) {
				m.stop() // with a goodbye: nobody waits for this node any more
				m.rename()
			} else {
				m.end(s)
			}
			m.start()
		},
	},
	{
		name: "clock-ahead-alert", store: "mysql",
		about: "a generator has an alert and a clock that is a day ahead; it is replaced by a new node with a right clock",
		strike: func(s *strike) {
			m := s.machine()
			m.end(s)
			m.setClock(25 * time.Hour)
			m.start()
			s.awaitMachine(m)
			m.db.Refuse(true)
			began, alert := time.Now(), "event alert.segment.refill_failed."+stock+` {"node":"`+m.node()
			s.must("an alert about refills", func() bool { return s.noted(began, alert) })
			m.stop()
			m.db.Refuse(false)
			m.setClock(0)
			m.rename()
			m.start()
		},
	},
	{
		// Until the clock is right, it serves tags only. By more than a second and beside others: with an alert.
		name: "clock-behind-start", about: "a generator starts with a clock that is behind its last run", weight: 1,
		harms: []string{harmsClocks}, touches: besideClock,
		strike: func(s *strike) {
			m := s.machine()
			m.end(s)
			m.setClock(-s.wrong())
			m.start()
			s.last(time.Second, 10*time.Second)
			m.setClock(0)
		},
	},
	{
		name: "nats-clock", about: "the clock of a NATS server is off by seconds to hours, also at a start", weight: 1,
		servers: "joined", harms: []string{harmsClocks}, touches: besideClock,
		strike: func(s *strike) {
			o, by := s.server(), s.wrong()
			if s.IntN(2) == 0 {
				by = -by
			}
			if s.IntN(2) == 0 {
				o.end(s)
				o.setClock(by)
				o.start()
			}
			s.clock(by, o.process)
		},
	},
}

// end kills the process, or stops it.
func (p *process) end(s *strike) {
	if s.IntN(2) == 0 {
		p.kill()
	} else {
		p.stop()
	}
}

// disk gives processes a disk for a while.
func (s *strike) disk(disk programs.Disk, most time.Duration, p *process) {
	p.control.Disk(disk)
	s.note("the disk of %s is bad", p.name)
	s.last(time.Second, most)
	p.control.Disk(programs.Fine)
	s.note("the disk of %s is fine", p.name)
}

// wrong is how far a clock is off: seconds, minutes or hours.
func (s *strike) wrong() time.Duration {
	switch s.IntN(3) {
	case 0:
		return s.between(100*time.Millisecond, 10*time.Second)
	case 1:
		return s.between(10*time.Second, 30*time.Minute)
	}
	return s.between(30*time.Minute, 24*time.Hour)
}

// clock makes the clock of a process wrong for a while.
func (s *strike) clock(by time.Duration, p *process) {
	p.setClock(by)
	s.last(time.Second, 9*time.Second)
	p.setClock(0)
}

func (p *process) setClock(by time.Duration) {
	p.control.Clock(by)
	p.w.note("the clock of %s is off by %v", p.name, by)
}

// rename makes the next start one of a new node with the same data folder. If the old one says that its last events
// were lost, its goodbye may be among them, and nothing else ends its alerts.
func (m *machine) rename() {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.args, "--node") + 1
	if log, err := os.ReadFile(m.log()); err == nil && strings.Contains(string(log), "events are lost") {
		m.w.episodes.forgetNode(m.args[i])
	}
	m.args[i] = fmt.Sprintf("%s-%d", m.name, m.starts)
}

// node is the name of the generator at its last or next start.
func (m *machine) node() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.args[slices.Index(m.args, "--node")+1]
}
