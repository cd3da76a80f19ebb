package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// spreadAfter is how long all generators must have stayed at their NATS servers before one
	// moves to another server.
	spreadAfter = 10 * time.Second
	// againFactor times spreadAfter is the least time between two attempts of one generator to
	// move.
	againFactor = 6
	// crowdedFactor times spreadAfter is how long all may use one server until that is an alert. By
	// then most have moved.
	crowdedFactor = 3
	// greetWait bounds the wait for the greeting of a NATS server. One that needs longer is not a
	// better one.
	greetWait = time.Second
	// moveWait is how long a move may take beside the wait for accepted requests. Then the
	// generator stays where it is.
	moveWait = 5 * time.Second
)

var errMoving = errors.New("the generator moves to another NATS server")

// NextServer chooses the NATS server of a connection's next attempt to reconnect. The zero value
// leaves the choice to nats.go. Its methods are safe for concurrent use.
type NextServer struct{ host atomic.Pointer[string] }

// Pick is a [nats.ReconnectToServerHandler]. A server that was chosen is tried once.
func (n *NextServer) Pick(pool []nats.Server, _ nats.ServerInfo) (*nats.Server, time.Duration) {
	if host := n.host.Swap(nil); host != nil {
		for i := range pool {
			if pool[i].URL.Host == *host {
				return &pool[i], 0
			}
		}
	}
	return nil, 0
}

// spreading spreads the generators over the NATS servers of a cluster. nats.go chooses at random,
// so all may use one server, and while that one hangs, every call fails. From the servers that most
// use, the generator with the lowest run moves. It moves only to a server that has at least two
// generators fewer, so that none moves back.
//
//	serve (the loop of the generator)
//	├── step ── look     whose turn it is
//	│   └── move         of this generator, in a goroutine
//	└── err              all use one server
type spreading struct {
	*base
	segments, snowflakes *service
	requests             *tasks // the accepted ones

	// moving: this generator has left its queue groups, or is about to, for a reconnect to another
	// server.
	moving atomic.Bool
	tried  atomic.Pointer[time.Time] // when it last tried to move

	// Owned by Run.
	after   time.Duration // spreadAfter
	all     []heartbeat   // of the generators here, in the order of their runs
	settled time.Time     // since when they are at the same servers
	crowded time.Time     // since when all use one server; zero: they do not
}

// look notes where the generators are. It returns how many use each server if it is the turn of
// this one to move. all is empty if this one is at no server of a cluster.
func (s *spreading) look(now time.Time, all []heartbeat) (own string, load map[string]int) {
	if !slices.EqualFunc(all, s.all, func(x, y heartbeat) bool {
		return x.ID == y.ID && x.Server == y.Server && x.Stays == y.Stays
	}) {
		s.all, s.settled = all, now
	}
	if len(all) == 0 {
		s.crowded = time.Time{}
		return "", nil
	}
	load = make(map[string]int)
	for _, b := range all {
		load[b.Server]++
	}
	switch {
	case len(load) != 1 || len(all) < 2:
		s.crowded = time.Time{}
	case s.crowded.IsZero():
		s.crowded = now
	}
	most := slices.MinFunc(slices.Collect(maps.Keys(load)), func(x, y string) int {
		return cmp.Or(load[y]-load[x], strings.Compare(x, y))
	})
	turn := slices.IndexFunc(all, func(b heartbeat) bool { return b.Server == most && !b.Stays })
	if load[most] < 2 || turn < 0 || all[turn].ID != s.group.self || now.Sub(s.settled) < s.after {
		return "", nil
	}
	return most, load
}

// err says that all generators have used one server for some time. Only the generator with the
// lowest run says it.
func (s *spreading) err(now time.Time) error {
	if s.crowded.IsZero() || now.Sub(s.crowded) < crowdedFactor*s.after || s.all[0].ID != s.group.self {
		return nil
	}
	nodes := make([]string, len(s.all))
	for i, b := range s.all {
		nodes[i] = b.Node
	}
	slices.Sort(nodes)
	return fmt.Errorf("all generators use one NATS server, %s: %s. While it hangs, every call fails. "+
		"Give each generator the addresses of several servers of the cluster (--server), and make sure that it can "+
		"reach them", s.link.conn.ConnectedServerName(), strings.Join(nodes, ", "))
}

// emptiest returns the address of the server with the fewest generators; empty: none has at least
// two fewer than own. ids has the ID of the server at each address; empty: none answers.
func emptiest(own string, load map[string]int, ids map[string]string) (address string) {
	least := load[own] - 1
	for _, at := range slices.Sorted(maps.Keys(ids)) {
		if id := ids[at]; id != "" && load[id] < least {
			least, address = load[id], at
		}
	}
	return address
}

// stays reports whether this generator cannot move now.
func (s *spreading) stays(now time.Time) bool {
	tried := s.tried.Load()
	return s.cfg.NextServer == nil || tried != nil && now.Sub(*tried) < againFactor*s.after ||
		s.segments.healthy() != nil || s.snowflakes.healthy() != nil
}

// here returns the generators that have a NATS server, in the order of their runs; nil: this one
// is at no server of a cluster, or does not serve.
func (s *spreading) here(now time.Time) []heartbeat {
	own := s.cfg.Conn.ConnectedServerId()
	if own == "" || s.cfg.Conn.ConnectedClusterName() == "" || !s.phase.serving.Load() {
		return nil
	}
	all := slices.DeleteFunc(s.group.present(now), func(b heartbeat) bool { return b.Server == "" })
	all = append(all, heartbeat{Node: s.cfg.Node, ID: s.group.self, Server: own, Stays: s.stays(now)})
	slices.SortFunc(all, func(x, y heartbeat) int { return strings.Compare(x.ID, y.ID) })
	return all
}

// step begins to move this generator to another NATS server, if it is its turn.
func (s *spreading) step(now time.Time) {
	own, load := s.look(now, s.here(now))
	if load != nil && !s.moving.Load() {
		s.tried.Store(&now)
		s.link.tasks.start(func() { s.move(emptiest(own, load, s.servers())) })
	}
}

// move leaves the queue groups. When all accepted requests are answered, it reconnects to the NATS
// server at an address. So no request is lost.
func (s *spreading) move(address string) {
	now := time.Now()
	others := s.group.anyPeer(now, time.Time{}, s.segments.offers) &&
		s.group.anyPeer(now, time.Time{}, s.snowflakes.offers)
	if address == "" || !others || !s.link.hears() {
		return
	}
	s.cfg.Log.Info("moving to another NATS server, because more generators use this one",
		"from", s.cfg.Conn.ConnectedServerName(), "to", address)
	s.moving.Store(true)
	s.heartbeats.now()
	defer func() {
		s.moving.Store(false)
		s.heartbeats.now()
	}()
	ctx, cancel := context.WithTimeout(s.phase.life, s.cfg.MaxWait+moveWait)
	defer cancel()
	if !until(ctx, func() bool { return left(s.segments, s.snowflakes) }) {
		return
	}
	accepted, cancel := context.WithTimeout(ctx, s.cfg.MaxWait) // requests through HTTP may go on for ever
	defer cancel()
	s.requests.wait(accepted)
	if err := s.link.flush(); err != nil { // the server has the last answers
		s.cfg.Log.Debug("not moving, because NATS does not answer", "error", err)
		return
	}
	if s.phase.draining.Load() {
		return
	}
	before := s.link.reconnects()
	s.cfg.NextServer.host.Store(&address)
	s.link.reconnect()
	until(ctx, func() bool { return s.link.reconnects() != before })
}

// servers returns the ID of the NATS server at each address that the connection knows; empty: none
// answers.
func (s *spreading) servers() map[string]string {
	ctx, cancel := context.WithTimeout(s.phase.life, greetWait)
	defer cancel()
	var addresses []string
	for _, server := range s.cfg.Conn.Servers() {
		if u, err := url.Parse(server); err == nil {
			addresses = append(addresses, u.Host)
		}
	}
	return wire.ServerIDs(ctx, addresses, nil)
}
