package tests

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// oldNATS is a NATS server of a version that must not be used. It greets, answers PING,
// and counts what else it is sent.
type oldNATS struct {
	address string

	mu    sync.Mutex
	conns []net.Conn
	asked []string
}

func startOldNATS(t *testing.T, address, version string) *oldNATS {
	t.Helper()
	l, err := net.Listen("tcp", address)
	must(t, err)
	s := &oldNATS{address: l.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			serving.Go(func() { s.serve(conn, version) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, conn := range s.conns {
			conn.Close()
		}
		s.mu.Unlock()
		serving.Wait()
	})
	return s
}

func (s *oldNATS) serve(conn net.Conn, version string) {
	defer conn.Close()
	fmt.Fprintf(conn, `INFO {"server_id":"OLD","server_name":"n1","version":%q,"cluster":"c","proto":1,"headers":true,"max_payload":1048576}`+"\r\n", version)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		s.mu.Lock()
		s.asked = append(s.asked, lines.Text())
		s.mu.Unlock()
		if lines.Text() == "PING" {
			_, _ = io.WriteString(conn, "PONG\r\n")
		}
	}
}

// untouched fails the test if the server was sent anything.
func (s *oldNATS) untouched(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) > 0 {
		t.Errorf("the old server was sent %q", s.asked)
	}
}

// refusalOf is what a generator says of a server that it must not use: one sentence.
func (s *oldNATS) refusalOf(version string) string {
	return "leaf: the NATS server n1 at " + s.address + " has version " + version + ", whose compare-and-set lets two generators reserve the same IDs in a cluster: " +
		"upgrade every NATS server to 2.9.21 or later, best to 2.11 or later\n"
}

// A start refuses NATS servers with a broken compare-and-set: the one that it joins, and
// any other of its list.
func TestOldNATSIsRefused(t *testing.T) {
	t.Parallel()
	good := newNATS(t)
	old := startOldNATS(t, "127.0.0.1:0", "2.9.20")
	for name, servers := range map[string]string{
		"alone":       "nats://" + old.address,
		"beside":      good.ClientURL() + ",nats://" + old.address,
		"in front of": "nats://" + old.address + "," + good.ClientURL(),
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, command(t, t.TempDir(), nil, []string{"serve", "--http", "", "-s", servers, "--tag", "order"}))
			if status := p.wait(patience); status != 1 {
				t.Errorf("exit status %d, want 1", status)
			}
			if stderr := p.stderr.String(); stderr != old.refusalOf("2.9.20") {
				t.Errorf("stderr says %q, want %q", stderr, old.refusalOf("2.9.20"))
			}
			if stdout := p.stdout.String(); stdout != "" {
				t.Errorf("stdout says %q", stdout)
			}
		})
	}
	old.untouched(t)
}

// Client commands change nothing by compare-and-set: they use any server.
func TestClientsUseOldNATS(t *testing.T) {
	t.Parallel()
	old := startOldNATS(t, "127.0.0.1:0", "2.9.20")
	if r := leaf(t, "nodes", "-s", "nats://"+old.address, "--timeout", "100ms"); strings.Contains(r.stderr, "2.9.20") {
		t.Errorf("leaf nodes says %s", r.stderr)
	}
}

// A server that is away is no reason to refuse a start, and the log says so.
func TestUnreachableNATSIsAWarning(t *testing.T) {
	t.Parallel()
	good, none := newNATS(t), testkit.FreeAddress(t)
	g := serve(t, t.TempDir(), "-s", good.ClientURL()+",nats://"+none, "--tag", "order")
	granted(t, ask(t, connect(t, good.ClientURL()), bus.SubjectSegment+".order", ""))
	if want := "is not known: make sure that it is 2.9.21 or later\" server=" + none; !strings.Contains(g.stderr.String(), want) {
		t.Errorf("the log does not say %q", want)
	}
	g.stop()
}

// A running generator ends if its NATS comes back with an old version, and reserves
// nothing there.
func TestNATSComesBackOld(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	g := serve(t, t.TempDir(), "-s", server.ClientURL(), "--tag", "order")
	nc := connect(t, server.ClientURL())
	granted(t, ask(t, nc, bus.SubjectSegment+".order", ""))
	nc.Close()
	server.Close()
	old := startOldNATS(t, server.cfg.Listen, "2.9.20")
	if status := g.wait(patience); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	if stderr := g.stderr.String(); !strings.HasSuffix(stderr, "\n"+old.refusalOf("2.9.20")) {
		t.Errorf("stderr does not end with %q", old.refusalOf("2.9.20"))
	}
	old.untouched(t)
}
