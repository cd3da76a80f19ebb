package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// fault is a kind of fault that the schedule can choose.
type fault struct {
	name    string
	about   string   // one line for -list
	weight  int      // how often it is chosen, beside others; 0: only by its name
	store   string   // only with this -store; empty: with both
	servers string   // only with these -servers; empty: with both
	alone   bool     // no other fault may strike meanwhile
	harms   []string // what it harms: two faults at a time never harm the same
	touches []string // what it also changes: beside faults that touch the same, never beside one that harms it
	begins  int      // how many machines the installation begins with; 0: all. Such a fault is always the first
	strike  func(s *strike)
}

// strike is one time that a fault strikes.
type strike struct {
	*world
	*rand.Rand // its own, from the seed
	*fault
	delay                 time.Duration // from the beginning of its round
	beside                round         // all strikes of its round
	began, ended, settled time.Time
	taken                 []*process
}

// between is a random time.
func (s *strike) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.Int64N(int64(most-least)+1))
}

// last waits for a random time.
func (s *strike) last(least, most time.Duration) { s.pause(s.between(least, most)) }

// must waits for something that the product does by itself, for at most as long as readiness may take.
func (s *strike) must(what string, holds func() bool) {
	if !s.await(readyWithin, 100*time.Millisecond, holds) {
		s.violated("ready", "", fmt.Sprintf("%s: waited %v in vain for this: %s", s.name, readyWithin, what))
	}
}

// machine is a random one that no other strike has. It is this strike's until its end.
func (s *strike) machine() *machine { return s.machineThat(func(*machine) bool { return true }) }

// machineThat is a machine that fits.
func (s *strike) machineThat(fits func(*machine) bool) *machine {
	var from []*machine
	for _, m := range s.machines {
		if fits(m) {
			from = append(from, m)
		}
	}
	return take(s, from, func(m *machine) *process { return m.process })
}

// server is [strike.machine] for a NATS server. If it is embedded, the strike has its machine, too.
func (s *strike) server() *server {
	return take(s, s.world.servers, func(o *server) *process { return o.process })
}

// take waits until no other strike has all of these, and takes a random one.
func take[T any](s *strike, from []T, of func(T) *process) T {
	for ; ; s.pause(100 * time.Millisecond) {
		var free []T
		s.mu.Lock()
		for _, x := range from {
			if !s.busy[of(x)] {
				free = append(free, x)
			}
		}
		s.mu.Unlock()
		if len(free) == 0 {
			continue
		}
		if x := free[s.IntN(len(free))]; s.have(of(x)) {
			return x
		}
	}
}

// have takes a process, unless another strike has it.
func (s *strike) have(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[p] {
		return false
	}
	s.busy[p] = true
	s.taken = append(s.taken, p)
	return true
}

// release gives back what the strike took last.
func (s *strike) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.taken) - 1
	delete(s.busy, s.taken[last])
	s.taken = s.taken[:last]
}

// round is faults that overlap.
type round []*strike

func (r round) names() string {
	var names []string
	for _, s := range r {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return strings.Join(names, " + ")
}

// plan chooses the faults of the round with this number; there may be none left. It depends on the seed alone.
func (w *world) plan(n int, from []*fault) (r round) {
	from = slices.Clone(from)
	isFirst := func(f *fault) bool { return f.begins > 0 }
	if first := slices.IndexFunc(from, isFirst); n == 1 && first >= 0 {
		from = from[first : first+1]
	} else if from = slices.DeleteFunc(from, isFirst); len(from) == 0 {
		return nil
	}
	random := rand.New(rand.NewPCG(w.cfg.seed, uint64(n)))
	size := 1
	if x := random.IntN(100); x >= 90 {
		size = 3
	} else if x >= 60 {
		size = 2
	}
	if len(from) == 1 {
		size = 1
	}
	for tries := 0; len(r) < size && tries < 20; tries++ {
		f := choose(random, from)
		fits := !slices.ContainsFunc(r, func(o *strike) bool {
			return o.fault == f || f.alone || o.alone || overlap(f.harms, o.harms) || overlap(f.harms, o.touches) ||
				overlap(f.touches, o.harms)
		})
		if !fits {
			continue
		}
		s := &strike{world: w, fault: f, Rand: rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))}
		if len(r) > 0 {
			s.delay = s.between(0, 6*time.Second)
		}
		r = append(r, s)
	}
	return r
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(what string) bool { return slices.Contains(b, what) })
}

func choose(random *rand.Rand, from []*fault) *fault {
	sum := 0
	for _, f := range from {
		sum += max(f.weight, 1)
	}
	x := random.IntN(sum)
	for _, f := range from {
		if x -= max(f.weight, 1); x < 0 {
			return f
		}
	}
	return from[0]
}

// run strikes, waits until everything is ready again, and checks what a calm installation must show.
func (r round) run(w *world, n int) {
	var all sync.WaitGroup
	for _, s := range r {
		s.beside = r
	}
	for _, s := range r {
		all.Go(func() {
			s.pause(s.delay)
			s.began = time.Now()
			w.note("— %s begins", s.name)
			s.fault.strike(s)
			s.ended = time.Now()
			w.note("— %s is over", s.name)
			for len(s.taken) > 0 {
				s.release()
			}
		})
	}
	all.Wait()
	if w.ctx.Err() != nil {
		return
	}
	w.awaitReady()
	w.calm()
	for _, s := range r {
		s.settled = time.Now()
	}
	fmt.Fprintln(w.progress, w.table.add(w, r).line(time.Since(w.began), n))
}
