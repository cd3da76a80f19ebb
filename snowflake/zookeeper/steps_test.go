package zookeeper

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/kit"
)

// steps counts what a client sends to ZooKeeper: its greetings and requests, but no pings, for those come at any
// time. At one of them a fault strikes.
type steps struct {
	proxy  *kit.Link
	at     int64                   // the step at which it strikes; 0: none
	strike func(*steps) kit.Action // says what becomes of it
	struck atomic.Bool
	seen   atomic.Int64

	// ending: the session is to end before the client has it again.
	ending atomic.Bool
	server string
}

// What a client sends begins with the length of a packet, 4 bytes, and the number of its request, 4 bytes. A
// greeting has 0 there.
const (
	pingNumber   = -2
	closeNumber  = 1
	closeRequest = -11
	ownSession   = 20 // bytes before the session in a greeting
)

func (s *steps) step(packet []byte) kit.Action {
	if len(packet) < 8 {
		return kit.Forward
	}
	number := int32(binary.BigEndian.Uint32(packet[4:]))
	if number == pingNumber && len(packet) == 12 {
		return kit.Forward
	}
	resumes := number == 0 && len(packet) >= ownSession+8 && binary.BigEndian.Uint64(packet[ownSession:]) != 0
	if resumes && s.ending.CompareAndSwap(true, false) {
		endSession(s.server, packet)
	}
	if s.seen.Add(1) != s.at {
		return kit.Forward
	}
	defer s.struck.Store(true)
	return s.strike(s)
}

// endSession ends a session as its holder would, so that nobody need wait until the server does.
func endSession(server string, greeting []byte) {
	conn, err := net.Dial("tcp", server)
	if err != nil {
		return // the client will find the server gone, too
	}
	defer conn.Close()
	var packet []byte
	for _, v := range []int32{8, closeNumber, closeRequest} {
		packet = binary.BigEndian.AppendUint32(packet, uint32(v))
	}
	for _, ask := range [][]byte{greeting, packet} {
		var size [4]byte
		_, _ = conn.Write(ask)
		if _, err := io.ReadFull(conn, size[:]); err == nil {
			_, _ = io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:])))
		}
	}
}

// faults are what can happen to a connection at a step. Those that last come first: end ends them, after a call has
// failed.
var faults = []struct {
	name   string
	strike func(*steps) kit.Action
	end    func(*steps)
}{
	// No server is there from then on, until the keeper has noticed.
	{
		"down",
		func(s *steps) kit.Action { s.proxy.Refuse(true); return kit.CutBefore },
		func(s *steps) { s.proxy.Refuse(false) },
	},
	// The network holds everything, and what nobody waits for any more arrives.
	{
		"late",
		func(s *steps) kit.Action { s.proxy.Hang(true); return kit.Forward },
		func(s *steps) { s.proxy.Hang(false) },
	},
	// An answer never comes, though the server answers pings: the client would wait as long as that lasts.
	{"dropped", func(*steps) kit.Action { return kit.Drop }, nil},
	// The connection breaks before the server has got the request, or after it did it.
	{"lost", func(*steps) kit.Action { return kit.CutBefore }, nil},
	{"silent", func(*steps) kit.Action { return kit.CutAfter }, nil},
	// The same, and the session is over when the client is back.
	{"lost and expired", func(s *steps) kit.Action { s.ending.Store(true); return kit.CutBefore }, nil},
	{"silent and expired", func(s *steps) kit.Action { s.ending.Store(true); return kit.CutAfter }, nil},
}

// keeper is one that starts and reports as a generator does: it looks for its own record, whose incarnation it knows
// also if the answer was lost, and else makes it.
type keeper struct {
	*Registry
	tb  testing.TB
	own snowflake.Entry
}

// newKeeper returns one with short sessions: it tries again.
func newKeeper(tb testing.TB, s *site) *keeper {
	k := &keeper{Registry: s.open(tb, "a"), tb: tb, own: snowflake.Entry{Record: holder("a")}}
	k.link.timeout = 2500 * time.Millisecond // the servers' least is a second
	return k
}

// try reports once.
func (k *keeper) try() error {
	ctx, cancel := context.WithTimeout(k.tb.Context(), 1500*time.Millisecond)
	defer cancel()
	if _, _, err := k.Claim(ctx, "test", true); err != nil {
		return err
	}
	entries, err := k.List(ctx)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(entries, func(e snowflake.Entry) bool { return e.Incarnation == k.own.Incarnation }); i >= 0 {
		k.own = entries[i]
		k.own.Reported++
		k.own.Version, err = k.Put(ctx, k.own.Record, k.own.Version)
	} else {
		_, err = k.Add(ctx, k.own.Record, anyWorker)
	}
	return err
}

// reports tries until it has reported.
func (k *keeper) reports() {
	k.tb.Helper()
	testkit.Eventually(k.tb, "it reports", func() bool { return k.try() == nil })
}

// server is the address of the server that it talks to; "": none.
func (k *keeper) server() string {
	k.link.mu.Lock()
	defer k.link.mu.Unlock()
	if k.link.client == nil {
		return ""
	}
	return k.link.client.raw.RemoteAddr().String()
}

// holds demands that ZooKeeper says who the keeper is: one record, of its incarnation, and a temporary node of its
// session.
func (k *keeper) holds(s *site) {
	k.tb.Helper()
	testkit.Eventually(k.tb, "the temporary node is of its session", func() bool {
		k.reports()
		k.link.mu.Lock()
		c := k.link.client
		k.link.mu.Unlock()
		return c != nil && s.leaseOf(k.tb, "a") == c.conn.SessionID()
	})
	records := s.children(k.tb, s.path("leaf_forever"))
	if d := parse[data](k.tb, records["a-0000000000"]); len(records) != 1 || d.Incarnation != "of a" {
		k.tb.Errorf("the records are %v; want one", records)
	}
}

// newSteps returns a keeper, and its place. A fault may strike on its way there.
func newSteps(tb testing.TB, at int64, strike func(*steps) kit.Action) (*steps, *keeper, *site) {
	tb.Helper()
	place, behind, p := newProxied(tb, kit.ZooKeeperHosts(tb))
	s := &steps{proxy: p, at: at, strike: strike, server: place.hosts}
	p.OnRequest(s.step)
	return s, newKeeper(tb, behind), place
}

// At every step of a start and of two reports, what can happen to a connection happens. The keeper ends registered,
// once, as the one that it was.
func TestEveryStep(t *testing.T) {
	t.Parallel()
	all, k, _ := newSteps(t, 0, nil)
	for range 3 {
		k.reports()
	}
	n := all.seen.Load()
	var failed atomic.Bool
	for _, f := range faults {
		for at := int64(1); at <= n; at++ {
			t.Run(fmt.Sprint(f.name, " at ", at), func(t *testing.T) {
				t.Parallel()
				if failed.Load() {
					return // TestEveryStep has failed already, and each further failure would take as long as the first
				}
				defer func() { failed.Store(failed.Load() || t.Failed()) }()
				steps, k, place := newSteps(t, at, f.strike)
				for !steps.struck.Load() {
					if err := k.try(); err != nil && f.end != nil {
						f.end(steps)
					}
				}
				if f.end != nil {
					f.end(steps)
				}
				k.holds(place)
			})
		}
	}
}
