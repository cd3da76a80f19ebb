package zookeeper

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/proxy"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// steps counts what a client sends to ZooKeeper: its greetings and requests, but
// no pings, for those come at any time. At one of them a fault strikes.
type steps struct {
	proxy  *proxy.Proxy
	at     int64                     // the step at which it strikes; 0: none
	strike func(*steps) proxy.Action // says what becomes of it; may block
	struck chan struct{}             // closed when strike has returned
	seen   atomic.Int64

	// ending: the session is to end before the client has it again; of strike and
	// the greetings after it.
	ending atomic.Bool
	server string
}

func newSteps(tb testing.TB, hosts string, at int64, strike func(*steps) proxy.Action) *steps {
	tb.Helper()
	p, err := proxy.Start(hosts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	s := &steps{proxy: p, at: at, strike: strike, struck: make(chan struct{}), server: hosts}
	p.OnRequest(s.step)
	return s
}

// What a client sends begins with the length of a packet, 4 bytes, and the number
// of its request, 4 bytes. A greeting has 0 there.
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
	if number == 0 && len(packet) >= ownSession+8 && binary.BigEndian.Uint64(packet[ownSession:]) != 0 && s.ending.CompareAndSwap(true, false) {
		endSession(s.server, packet)
	}
	if s.seen.Add(1) != s.at {
		return proxy.Forward
	}
	defer close(s.struck)
	return s.strike(s)
}

// endSession ends a session as its holder would, so that nobody need wait until
// the server does.
func endSession(server string, greeting []byte) {
	conn, err := net.Dial("tcp", server)
	if err != nil {
		return // the client will find the server gone, too
	}
	defer conn.Close()
	var size [4]byte
	answer := func() {
		if _, err := io.ReadFull(conn, size[:]); err == nil {
			_, _ = io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:])))
		}
	}
	_, _ = conn.Write(greeting)
	answer()
	var packet []byte
	for _, v := range []int32{8, closeNumber, closeRequest} {
		packet = binary.BigEndian.AppendUint32(packet, uint32(v))
	}
	_, _ = conn.Write(packet)
	answer()
}

// fault is what happens at a step.
type fault struct {
	name string
	// strike says what becomes of the step.
	strike func(*steps) proxy.Action
	end    func(*steps) // after a call of the generator's has failed; may be nil
}

// faults are what can happen to a connection. Those that last come first.
var faults = []fault{
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

// run is a generator that starts and reports some times while a fault strikes,
// and that is stopped and started again afterwards.
type run struct {
	place *site // not through the proxy
	steps *steps
	m     *machine
	g     *generator
	ids   allocatortest.Checker
}

func newRun(tb testing.TB, hosts string, at int64, strike func(*steps) proxy.Action) *run {
	tb.Helper()
	r := &run{place: newSite(tb, hosts), steps: newSteps(tb, hosts, at, strike)}
	behind := *r.place
	behind.hosts = r.steps.proxy.Addr()
	r.m = newMachine(tb, &behind, "a", &r.ids)
	r.m.config.Reserve = snowflake.LeastReserve
	r.m.config.MaxWait = 15 * time.Second // dozens of runs share a busy machine
	r.g = r.m.start()
	r.g.issuing(snowflake.ErrNoWorker)
	return r
}

// check demands that all is as it should be after the fault, and after another
// start.
func (r *run) check(tb testing.TB) {
	tb.Helper()
	worker := r.g.registered()
	if worker != 0 {
		tb.Errorf("worker %d", worker)
	}
	r.look(tb)
	r.g.stop()
	r.g = r.m.start()
	r.g.issuing(snowflake.ErrNoWorker)
	if now := r.g.registered(); now != worker {
		tb.Errorf("worker %d, and %d after a start", worker, now)
	}
	r.look(tb)
	r.g.stop()
	unique(tb, &r.ids)
}

// look demands one record and one temporary node, both of the present holder.
func (r *run) look(tb testing.TB) {
	tb.Helper()
	own := r.g.incarnation()
	testkit.Eventually(tb, "the temporary node is of the holder and its session", func() bool {
		session, _ := r.place.owner(tb, "a")
		return session == r.g.registry.session() && maps.Equal(r.place.incarnations(tb), map[string]string{"a": own})
	})
	records := r.place.records(tb)
	if len(records) != 1 || records["a-0000000000"].Incarnation != own {
		tb.Errorf("the records are %+v; want one, of %s", records, own)
	}
}

// count is how many steps a start and two reports take.
func count(tb testing.TB, hosts string) int64 {
	tb.Helper()
	r := newRun(tb, hosts, 0, nil)
	testkit.Eventually(tb, "two reports", func() bool { return r.g.registry.written.Load() > 2 })
	n := r.steps.seen.Load()
	r.check(tb)
	tb.Logf("%d steps", n)
	return n
}

// At every step of a start and of the renewal, what can happen to a connection
// happens. The generator ends registered, once, as the one that it was.
func TestEveryStep(t *testing.T) {
	t.Parallel()
	hosts := server.Hosts(t)
	n := count(t, hosts)
	b := newBatch(t, 48)
	defer b.wait()
	for _, f := range faults {
		for at := int64(1); at <= n; at++ {
			b.run(fmt.Sprint(f.name, " at ", at), func(t *testing.T) {
				r := newRun(t, hosts, at, f.strike)
				testkit.Eventually(t, "the fault", r.steps.isStruck)
				if f.end != nil {
					failed := r.g.registry.failed.Load()
					testkit.Eventually(t, "a call fails", func() bool { return r.g.registry.failed.Load() > failed })
					f.end(r.steps)
				}
				r.check(t)
			})
		}
	}
}

func (s *steps) isStruck() bool {
	select {
	case <-s.struck:
		return true
	default:
		return false
	}
}

// At every step of a start and of the renewal the server is killed: once, while
// at each step one generator waits before the server has got the request, and
// another after it may have done it.
func TestServerKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	zookeeper := server.New(t)
	hosts := zookeeper.Addr()
	n := count(t, hosts)
	var arrived atomic.Int64
	killed, back := make(chan struct{}), make(chan struct{})
	faults := []fault{
		{"before", func(*steps) proxy.Action { arrived.Add(1); <-killed; return proxy.CutBefore }, func(*steps) {}},
		{
			"after",
			func(s *steps) proxy.Action { s.proxy.Delay(time.Hour); arrived.Add(1); return proxy.Forward },
			func(s *steps) { s.proxy.Cut(); s.proxy.Delay(0) },
		},
	}
	all := len(faults) * int(n)
	b := newBatch(t, all)
	defer b.wait()
	defer close(back)
	defer close(killed) // Start waits until the server serves
	for _, f := range faults {
		for at := int64(1); at <= n; at++ {
			b.run(fmt.Sprint(f.name, " ", at), func(t *testing.T) {
				r := newRun(t, hosts, at, f.strike)
				<-killed
				f.end(r.steps)
				<-back
				r.place = r.place.again(t)
				r.check(t)
			})
		}
	}
	testkit.Eventually(t, "all are there", func() bool { return arrived.Load() == int64(all) })
	if err := zookeeper.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := zookeeper.Start(); err != nil {
		t.Fatal(err)
	}
}
