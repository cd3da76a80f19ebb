package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

// processFaults strike single processes: generators, and NATS servers, which may be embedded in generators.
var processFaults = []*fault{
	{
		name: "kill", about: "kill -9 of a generator, which comes back after up to 10 s", weight: 4,
		strike: func(s *strike) { s.killed(10*time.Second, s.machine().process) },
	},
	{
		name: "gone", about: "kill -9 of a generator, which comes back after 15 to 20 s", weight: 1,
		strike: func(s *strike) {
			m := s.machine()
			m.kill()
			s.last(15*time.Second, 20*time.Second)
			m.start()
		},
	},
	{
		name: "freeze", about: "SIGSTOP of a generator for up to 10 s", weight: 4,
		strike: func(s *strike) { s.frozen(10*time.Second, s.machine().process) },
	},
	{
		name: "freeze-again", about: "SIGSTOP of a generator, again and again before it has recovered", weight: 2,
		strike: func(s *strike) {
			m := s.machine()
			for range 2 + s.IntN(3) {
				s.frozen(5*time.Second, m.process)
				s.last(0, 500*time.Millisecond)
			}
		},
	},
	{
		name: "restart", about: "SIGTERM of a generator, which is started again at once", weight: 2,
		strike: func(s *strike) {
			m := s.machine()
			m.stop()
			m.start()
			s.last(0, 3*time.Second)
		},
	},
	{
		name: "start-killed", about: "kill -9 of a generator again and again while it starts", weight: 2,
		strike: func(s *strike) {
			m := s.machine()
			for range 2 + s.IntN(3) {
				m.kill()
				m.start()
				s.last(0, 2*time.Second)
			}
		},
	},
	{
		name: "rolling", about: "SIGTERM and start of one generator after the other, each when the one before is ready",
		weight: 1,
		strike: func(s *strike) {
			for _, m := range s.machines {
				take(s, []*process{m.process}, itself)
				m.stop()
				m.start()
				s.awaitMachine(m)
				s.release()
			}
		},
	},
	{
		// The loop of docs/operate.md, "Restart machines one after the other".
		name: "rolling-redundant", about: "rolling, each when leaf doctor --wait says so", weight: 1, alone: true,
		strike: func(s *strike) {
			s.awaitRedundant()
			began := time.Now()
			for _, m := range s.machines {
				m.stop()
				m.start()
				s.awaitRedundant()
			}
			if s.cfg.servers == "joined" {
				s.spared(began)
			}
		},
	},
	{
		name: "leader-kill", about: "kill -9 of the NATS server that leads the tags", weight: 2,
		strike: func(s *strike) { s.killed(10*time.Second, s.leader().process) },
	},
	{
		name: "leader-freeze", about: "SIGSTOP of the NATS server that leads the tags for up to 10 s", weight: 2,
		strike: func(s *strike) { s.frozen(10*time.Second, s.leader().process) },
	},
	{
		name: "leader-stepdown", about: "the leaders of all buckets step down, again and again", weight: 2,
		strike: func(s *strike) {
			done := 0
			for range 2 + s.IntN(8) {
				for _, bucket := range []string{wire.BucketTags, wire.BucketWorkers, wire.BucketKeys} {
					answer, err := s.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_"+bucket, nil, time.Second)
					if err == nil && strings.Contains(string(answer.Data), `"success":true`) {
						done++
					}
				}
				s.last(0, 2*time.Second)
			}
			s.note("%d leaders stepped down", done)
		},
	},
	{
		name: "quorum-kill", about: "kill -9 of two of three NATS servers for up to 20 s", weight: 1,
		harms: []string{harmsJetStream}, touches: []string{harmsJetStream},
		strike: func(s *strike) { s.killed(20*time.Second, s.server().process, s.server().process) },
	},
	{
		name: "quorum-freeze", about: "SIGSTOP of two of three NATS servers for up to 20 s", weight: 1,
		harms: []string{harmsJetStream}, touches: []string{harmsJetStream},
		strike: func(s *strike) { s.frozen(20*time.Second, s.server().process, s.server().process) },
	},
	{
		name: "nats-kill", about: "kill -9 of a NATS server for up to 10 s", weight: 2, servers: "joined",
		strike: func(s *strike) { s.killed(10*time.Second, s.server().process) },
	},
	{
		name: "nats-freeze", about: "SIGSTOP of a NATS server for up to 10 s", weight: 2, servers: "joined",
		strike: func(s *strike) { s.frozen(10*time.Second, s.server().process) },
	},
	{
		name: "nats-storm", about: "kill -9 of a NATS server with 2,000 connections, which then come to the other servers",
		weight: 1, servers: "joined", alone: true, strike: storm,
	},
	{
		name: "nats-rolling", about: "SIGTERM and start of one NATS server after the other, each when any one may stop",
		weight: 1, servers: "joined", alone: true,
		strike: func(s *strike) {
			s.awaitRedundant()
			for _, o := range s.world.servers {
				o.stop()
				o.start()
				s.awaitRedundant()
			}
		},
	},
}

// killed kills processes, and starts them after a while.
func (s *strike) killed(most time.Duration, all ...*process) {
	for _, p := range all {
		p.kill()
	}
	s.last(0, most)
	for _, p := range all {
		p.start()
	}
}

// frozen freezes processes, and thaws them after a while.
func (s *strike) frozen(most time.Duration, all ...*process) {
	for _, p := range all {
		p.freeze() // one that has just ended by itself is not there to be frozen
	}
	s.last(time.Second, most)
	for _, p := range all {
		p.thaw()
	}
}

// froze freezes a machine, and thaws it after a while. Then the channel is closed.
func (s *strike) froze(m *machine, lasts time.Duration) <-chan struct{} {
	m.freeze()
	thawed := make(chan struct{})
	go func() {
		defer close(thawed)
		s.pause(lasts)
		m.thaw()
	}()
	return thawed
}

func itself(p *process) *process { return p }

// leader takes the NATS server that leads the tags.
func (s *strike) leader() *server {
	for led := time.Now(); time.Since(led) < readyWithin; s.pause(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		stream, err := s.js.Stream(ctx, "KV_"+wire.BucketTags)
		cancel()
		if err != nil {
			continue // the others elect one, or the observer's own server has gone
		}
		for _, o := range s.world.servers {
			if c := stream.CachedInfo().Cluster; c != nil && c.Leader == fmt.Sprint("s", o.i) {
				if s.have(o.process) {
					return o
				}
				led = time.Now() // another strike has it
			}
		}
	}
	s.violated("ready", "", fmt.Sprintf("for %v no NATS server led the tags", readyWithin))
	return nil
}

// awaitMachine waits until a machine is ready, as far as other faults let it.
func (s *strike) awaitMachine(m *machine) {
	s.await(readyWithin, 100*time.Millisecond, m.ready)
}

// awaitRedundant waits until any one machine may stop. No other fault strikes, so it must come soon. Generators that
// all use one NATS server move.
func (s *strike) awaitRedundant() {
	for end := time.Now().Add(2 * readyWithin); ; {
		r := s.operator("doctor", "--wait=18s")
		switch {
		case r.Status == 0:
			return
		case time.Now().After(end):
			s.violated("redundant", "", fmt.Sprintf("leaf doctor --wait: exit status %d: %s", r.Status, r.Stderr))
		}
	}
}

// spared demands that no call failed since a moment, because only generators were stopped (docs/operate.md). It does
// not count calls over HTTP, because a generator may not listen, and calls that ran out of time, because the machine
// may be busy.
func (s *strike) spared(since time.Time) {
	for kind, met := range s.judge.Met(since, time.Now()) {
		for reason, n := range met.Reasons {
			if !strings.HasSuffix(kind, "HTTP") && reason != "timed out" && reason != string(bus.TimedOut) {
				s.violated("spared", "", fmt.Sprintf("%s: %d calls failed because generators were stopped: %s", kind, n, reason))
			}
		}
	}
}

// storm kills a NATS server that has many connections.
func storm(s *strike) {
	o := s.server()
	options := []nats.Option{
		nats.DontRandomize(), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	doors := "nats://" + o.door.Addr() + "," + s.doors()
	var conns []*nats.Conn
	defer func() {
		for _, nc := range conns {
			nc.Close()
		}
	}()
	for range 2000 {
		nc, err := nats.Connect(doors, options...)
		if err != nil {
			s.note("only %d connections: %v", len(conns), err)
			break
		}
		conns = append(conns, nc)
	}
	s.killed(10*time.Second, o.process)
	s.must("the connections come to other servers", func() bool {
		return !slices.ContainsFunc(conns, func(nc *nats.Conn) bool { return !nc.IsConnected() })
	})
}
