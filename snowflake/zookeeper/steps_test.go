package zookeeper

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/proxy"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// steps counts what a client sends to ZooKeeper: its greetings and requests, but no pings, for those come at any
// time. At one of them a fault strikes.
type steps struct {
	proxy  *proxy.Proxy
	at     int64                     // the step at which it strikes; 0: none
	strike func(*steps) proxy.Action // says what becomes of it
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

func (s *steps) step(packet []byte) proxy.Action {
	if len(packet) < 8 {
		return proxy.Forward
	}
	number := int32(binary.BigEndian.Uint32(packet[4:]))
	if number == pingNumber && len(packet) == 12 {
		return proxy.Forward
	}
	resumes := number == 0 && len(packet) >= ownSession+8 && binary.BigEndian.Uint64(packet[ownSession:]) != 0
	if resumes && s.ending.CompareAndSwap(true, false) {
		endSession(s.server, packet)
	}
	if s.seen.Add(1) != s.at {
		return proxy.Forward
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

// faults are what can happen to a connection at a step. Those that last come first: end ends them, after a call
// of the generator's has failed.
var faults = []struct {
	name   string
	strike func(*steps) proxy.Action
	end    func(*steps)
}{
	// No server is there from then on, until the generator has noticed.
	{
		"down",
		func(s *steps) proxy.Action { s.proxy.Refuse(true); return proxy.CutBefore },
		func(s *steps) { s.proxy.Refuse(false) },
	},
	// The network holds everything, and what nobody waits for any more arrives.
	{
		"late",
		func(s *steps) proxy.Action { s.proxy.Hang(true); return proxy.Forward },
		func(s *steps) { s.proxy.Hang(false) },
	},
	// The connection breaks before the server has got the request, or after it did it.
	{"lost", func(*steps) proxy.Action { return proxy.CutBefore }, nil},
	{"silent", func(*steps) proxy.Action { return proxy.CutAfter }, nil},
	// The same, and the session is over when the client is back.
	{"lost and expired", func(s *steps) proxy.Action { s.ending.Store(true); return proxy.CutBefore }, nil},
	{"silent and expired", func(s *steps) proxy.Action { s.ending.Store(true); return proxy.CutAfter }, nil},
}

// newSteps returns a machine and a place of its own. A fault may strike on its way there.
func newSteps(tb testing.TB, at int64, strike func(*steps) proxy.Action) (*steps, *machine, *site) {
	tb.Helper()
	place, behind, p := newProxied(tb, server.Hosts(tb))
	s := &steps{proxy: p, at: at, strike: strike, server: place.hosts}
	p.OnRequest(s.step)
	return s, newMachine(tb, behind, snowflake.LeastReserve), place
}

// At every step of a start and of two reports, what can happen to a connection happens. The generator ends
// registered, once, as the one that it was, also after another start.
func TestEveryStep(t *testing.T) {
	t.Parallel()
	all, m, _ := newSteps(t, 0, nil)
	g := m.start()
	testkit.Eventually(t, "two reports", func() bool { return g.registry.written.Load() > 2 })
	n := all.seen.Load()
	g.stop()
	t.Logf("%d steps", n)
	for _, f := range faults {
		for at := int64(1); at <= n; at++ {
			t.Run(fmt.Sprint(f.name, " at ", at), func(t *testing.T) {
				t.Parallel()
				steps, m, place := newSteps(t, at, f.strike)
				g := m.start()
				testkit.Eventually(t, "the fault", steps.struck.Load)
				if f.end != nil {
					failed := g.registry.failed.Load()
					testkit.Eventually(t, "a call fails", func() bool { return g.registry.failed.Load() > failed })
					f.end(steps)
				}
				for again := range 2 {
					if again > 0 {
						g = m.start()
					}
					g.issuing(snowflake.ErrNoWorker)
					if worker := g.reports(); worker != 0 {
						t.Errorf("worker %d", worker)
					}
					g.holds(t, place)
					g.stop()
				}
				m.unique()
			})
		}
	}
}
