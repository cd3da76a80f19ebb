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
	taken                 []*machine
}

// between is a random time.
func (s *strike) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.Int64N(int64(most-least)+1))
}

// last waits for a random time.
func (s *strike) last(least, most time.Duration) { s.pause(s.between(least, most)) }

// machine is a random one that runs, and that no other strike has. It is this strike's until its end.
func (s *strike) machine() *machine { return s.machineThat(func(*machine) bool { return true }) }

// machineThat is a machine that fits.
func (s *strike) machineThat(fits func(*machine) bool) *machine {
	for {
		s.mu.Lock()
		var free []*machine
		for _, m := range s.machines {
			if !s.busy[m] && fits(m) {
				free = append(free, m)
			}
		}
		if len(free) > 0 {
			m := free[s.IntN(len(free))]
			s.busy[m] = true
			s.taken = append(s.taken, m)
			s.mu.Unlock()
			return m
		}
		s.mu.Unlock()
		s.pause(100 * time.Millisecond)
	}
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

// plan chooses the faults of the round with this number. It depends on the seed alone.
func (w *world) plan(n int, from []*fault) (r round) {
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
			return o.fault == f || f.alone || o.alone ||
				slices.ContainsFunc(f.harms, func(what string) bool { return slices.Contains(o.harms, what) })
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
			w.mu.Lock()
			for _, m := range s.taken {
				delete(w.busy, m)
			}
			w.mu.Unlock()
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
	w.table.add(w, r)
	fmt.Fprintln(w.progress, w.table.line(w, n, r))
}
