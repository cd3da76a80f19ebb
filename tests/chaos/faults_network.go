package main

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/tests/kit"
)

// networkFaults are about links. A generator that is parted from the others for more than 3 s may hand out IDs below a
// max_id that an operator sets meanwhile (docs/guarantees.md): a fault that sets one declares that.
var networkFaults = touching(harmsNetwork, []*fault{
	{
		name: "link-cut", about: "links of a generator, one or all, refuse connections for up to 10 s", weight: 3,
		strike: func(s *strike) {
			s.harm((*kit.Link).Refuse, 0, 10*time.Second, s.some(both(s.machine().links()))...)
		},
	},
	{
		name: "link-flap", about: "the connections of a generator, of one link or all, are cut again and again", weight: 2,
		strike: func(s *strike) {
			links := s.some(both(s.machine().links()))
			for range 2 + s.IntN(9) {
				each(links, (*kit.Link).Cut)
				s.last(0, time.Second)
			}
		},
	},
	{
		name: "link-slow", about: "answers over the links of a generator, one or all, come 20 to 300 ms later", weight: 2,
		strike: func(s *strike) {
			links := s.some(both(s.machine().links()))
			delay := s.between(20*time.Millisecond, 300*time.Millisecond)
			s.note("answers come %v later", delay)
			each(links, func(l *kit.Link) { l.Delay(delay) })
			s.last(3*time.Second, 15*time.Second)
			each(links, func(l *kit.Link) { l.Delay(0) })
		},
	},
	{
		name: "link-silent", about: "a machine has no network for up to 15 s, and no connection is closed", weight: 3,
		strike: func(s *strike) { s.hang(both(s.machine().links())...) },
	},
	{
		name: "link-oneway", about: "one direction of all links of a machine is silent for up to 15 s", weight: 3,
		strike: func(s *strike) { out, in := s.machine().links(); s.oneway(out, in) },
	},
	{
		// The generators at these two servers still hear themselves, so they do not notice that they are parted.
		name: "pair-silent", about: "the link between two NATS servers is silent for up to 15 s", weight: 2,
		strike: func(s *strike) { s.hang(s.pair()) },
	},
	{
		name: "pair-oneway", about: "one direction of the link between two NATS servers is silent for up to 15 s", weight: 2,
		strike: func(s *strike) {
			l, hang := s.pair(), (*kit.Link).HangRequests
			if s.IntN(2) == 0 {
				hang = (*kit.Link).HangAnswers
			}
			s.harm(hang, time.Second, 15*time.Second, l)
		},
	},
	{
		name: "pair-cut", about: "the link between two NATS servers refuses connections for up to 15 s", weight: 2,
		strike: func(s *strike) { s.harm((*kit.Link).Refuse, time.Second, 15*time.Second, s.pair()) },
	},
	{
		name: "nats-link-silent", about: "a generator's links to NATS are silent for up to 15 s", weight: 2,
		strike: func(s *strike) {
			m := s.joined()
			each(m.nats, func(l *kit.Link) { l.Hang(true) })
			s.last(time.Second, 15*time.Second)
			if s.IntN(2) == 0 {
				s.note("what was held is lost")
				each(m.nats, (*kit.Link).Cut)
			}
			each(m.nats, func(l *kit.Link) { l.Hang(false) })
		},
	},
	{
		name: "nats-link-cut", about: "a generator's links to NATS refuse connections for up to 15 s", weight: 2,
		strike: func(s *strike) { s.harm((*kit.Link).Refuse, 0, 15*time.Second, s.joined().nats...) },
	},
	{
		name: "parted", about: "a machine with an embedded NATS server is parted for 7 to 12 s",
		servers: "embedded", alone: true,
		strike: func(s *strike) {
			s.harm((*kit.Link).Refuse, 7*time.Second, 12*time.Second, both(s.server().links())...)
		},
	},
	{
		name: "nats-silent", about: "a NATS server has no network for up to 15 s, and no connection is closed", weight: 2,
		servers: "joined",
		strike:  func(s *strike) { s.hang(both(s.server().links())...) },
	},
	{
		name: "nats-oneway", about: "one direction of all links of a NATS server is silent for up to 15 s", weight: 2,
		servers: "joined",
		strike:  func(s *strike) { out, in := s.server().links(); s.oneway(out, in) },
	},
	{
		name: "lost-answers", about: "writes to stores get no answer: some are done, some are not", weight: 3,
		strike: loseAnswers,
	},
})

func touching(what string, all []*fault) []*fault {
	for _, f := range all {
		f.touches = append(f.touches, what)
	}
	return all
}

// both are the links that are opened and those that others open.
func both(out, in []*kit.Link) []*kit.Link { return append(out, in...) }

// some are all of these links, or a random one.
func (s *strike) some(links []*kit.Link) []*kit.Link {
	if s.IntN(2) == 0 {
		return links
	}
	i := s.IntN(len(links))
	s.note("only the link to %s", links[i].Target())
	return links[i : i+1]
}

func each(links []*kit.Link, do func(*kit.Link)) {
	for _, l := range links {
		do(l)
	}
}

// harm does something to links for a random time, and undoes it.
func (s *strike) harm(do func(*kit.Link, bool), least, most time.Duration, links ...*kit.Link) {
	each(links, func(l *kit.Link) { do(l, true) })
	s.last(least, most)
	each(links, func(l *kit.Link) { do(l, false) })
}

// hang makes links silent for up to 15 s. What was held then goes on.
func (s *strike) hang(links ...*kit.Link) {
	s.harm((*kit.Link).Hang, time.Second, 15*time.Second, links...)
}

// oneway makes one direction silent for a while, of links that are opened and links that others open.
func (s *strike) oneway(out, in []*kit.Link) {
	requests, answers := (*kit.Link).HangRequests, (*kit.Link).HangAnswers
	if s.IntN(2) == 0 {
		s.note("it is heard, and does not hear")
		requests, answers = answers, requests
	} else {
		s.note("it hears, and is not heard")
	}
	each(out, func(l *kit.Link) { requests(l, true) })
	each(in, func(l *kit.Link) { answers(l, true) })
	s.last(time.Second, 15*time.Second)
	each(out, func(l *kit.Link) { requests(l, false) })
	each(in, func(l *kit.Link) { answers(l, false) })
}

// pair is a random link between two NATS servers.
func (s *strike) pair() *kit.Link {
	i := s.IntN(len(s.world.servers))
	o := s.world.servers[(i+1)%len(s.world.servers)]
	s.note("the link between s%d and s%d", i, o.i)
	return s.world.servers[i].between(o)
}

// joined takes a random machine that embeds no NATS server.
func (s *strike) joined() *machine {
	return s.machineThat(func(m *machine) bool { return m.server == nil })
}

// writes are what requests contain that change a record of tags or workers, in JetStream, MySQL and ZooKeeper.
var writes = [][]byte{
	[]byte("$KV.LEAF_TAGS."), []byte("$KV.LEAF_WORKERS."),
	[]byte("UPDATE "), []byte("leaf_forever"),
}

// loseAnswers takes the answer of one write after the other. A claim is a request, so its generator waits for an
// answer that does not come. An embedded server's own generator reaches it inside the process, so there only what
// goes over routes can be lost.
func loseAnswers(s *strike) {
	var links []*kit.Link
	for _, m := range s.machines {
		out, _ := m.links()
		links = append(links, out...)
	}
	var action, due, met atomic.Int64
	swallows := make([]atomic.Bool, len(links))
	for i, l := range links {
		l.OnRequest(func(data []byte) kit.Action {
			switch {
			case swallows[i].Load():
				return kit.Drop
			case !contains(data, writes) || due.Add(-1) < 0:
				return kit.Forward
			}
			met.Add(1)
			now := kit.Action(action.Load())
			if now == kit.Drop {
				swallows[i].Store(true)
			}
			return now
		})
	}
	for range 5 + s.IntN(10) {
		now, most := []kit.Action{kit.CutBefore, kit.CutAfter, kit.CutAfter, kit.Drop}[s.IntN(4)], 1500*time.Millisecond
		if now == kit.Drop && s.IntN(3) == 0 {
			most = 7 * time.Second // longer than a generator waits for its store, and its peers for it
		}
		action.Store(int64(now))
		due.Store(1)
		s.last(100*time.Millisecond, most)
		for i, l := range links {
			if swallows[i].Load() { // a connection that lost bytes can never go on
				l.Refuse(true)
				swallows[i].Store(false)
				l.Refuse(false)
			}
		}
	}
	each(links, func(l *kit.Link) { l.OnRequest(nil) })
	s.note("%d writes lost their answers", met.Load())
}

func contains(data []byte, any [][]byte) bool {
	for _, text := range any {
		if bytes.Contains(data, text) {
			return true
		}
	}
	return false
}
