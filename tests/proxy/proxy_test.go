package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
)

// moment is how long a test watches that nothing happens.
const moment = 30 * time.Millisecond

func TestMain(m *testing.M) { testkit.Main(m) }

// echo is a server that answers with what it is sent.
type echo struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	received bytes.Buffer
	open     map[net.Conn]struct{}
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{listener: l, open: map[net.Conn]struct{}{}}
	e.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			e.running.Go(func() { e.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		e.running.Wait()
	})
	return e
}

func (e *echo) serve(conn net.Conn) {
	e.mu.Lock()
	e.open[conn] = struct{}{}
	e.mu.Unlock()
	buf := make([]byte, 1024)
	for {
		n, err := conn.Read(buf)
		e.mu.Lock()
		e.received.Write(buf[:n])
		e.mu.Unlock()
		if err != nil {
			break
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			break
		}
	}
	conn.Close()
	e.mu.Lock()
	delete(e.open, conn)
	e.mu.Unlock()
}

func (e *echo) got() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.received.String()
}

func (e *echo) conns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.open)
}

// start returns a proxy before an echo server.
func start(t *testing.T) (*Proxy, *echo) {
	t.Helper()
	e := newEcho(t)
	p, err := Start(e.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, e
}

// conn is a client's connection.
type conn struct {
	*net.TCPConn
	t *testing.T
}

func dial(t *testing.T, p *Proxy) conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return conn{c.(*net.TCPConn), t}
}

func (c conn) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// want reads the answer.
func (c conn) want(text string) {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(testkit.Patience))
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != text {
		c.t.Fatalf("read %q (%v), want %q", buf, err, text)
	}
}

// silent checks that nothing arrives and that the connection stays open.
func (c conn) silent() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(moment))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

// closed checks that the connection is closed and nothing arrives before.
func (c conn) closed() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(testkit.Patience))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %d bytes, %v; want the connection to be closed", n, err)
	}
}

func TestForward(t *testing.T) {
	p, e := start(t)
	a, b := dial(t, p), dial(t, p)
	a.send("one")
	b.send("two")
	a.want("one")
	b.want("two")

	// More than fits into any buffer on the way comes back whole.
	big := strings.Repeat("0123456789abcdef", 1<<16)
	var sending sync.WaitGroup
	sending.Go(func() { io.WriteString(a, big) })
	a.want(big)
	sending.Wait()

	// The end of either side is passed on.
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	a.closed()
	b.Close()
	testkit.Eventually(t, "the end of the server's connections", func() bool { return e.conns() == 0 })
	testkit.Eventually(t, "the end of the proxy's", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.links) == 0
	})
}

func TestDelay(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	c.send("now")
	c.want("now")

	p.Delay(moment)
	for _, text := range []string{"1", "2", "3", "4", "5"} {
		c.send(text)
	}
	c.want("12345")

	p.Delay(time.Hour)
	c.send("late")
	c.silent()
	p.Delay(0)
	c.want("late")
}

func TestHang(t *testing.T) {
	p, e := start(t)
	present := dial(t, p)
	present.send("a")
	present.want("a")

	p.Hang(true)
	fresh := dial(t, p)
	present.send("b")
	fresh.send("c")
	present.silent()
	fresh.silent()
	if got := e.got(); got != "a" {
		t.Errorf("the server got %q while the proxy hung", got)
	}
	p.Hang(false)
	present.want("b")
	fresh.want("c")

	// An answer is held too, and so is the end of the server.
	p.Delay(time.Hour)
	present.send("d")
	testkit.Eventually(t, "the request", func() bool { return strings.Contains(e.got(), "d") })
	p.Hang(true)
	p.Delay(0)
	present.silent()
	p.Hang(false)
	present.want("d")
}

func TestCut(t *testing.T) {
	for name, hanging := range map[string]bool{"forwarding": false, "hanging": true} {
		t.Run(name, func(t *testing.T) {
			p, e := start(t)
			a, b := dial(t, p), dial(t, p)
			for _, c := range []conn{a, b} {
				c.send("x")
				c.want("x")
			}
			p.Hang(hanging)
			p.Cut()
			a.closed()
			b.closed()
			testkit.Eventually(t, "the end of the server's connections", func() bool { return e.conns() == 0 })
			p.Hang(false)
			c := dial(t, p)
			c.send("again")
			c.want("again")
		})
	}
}

func TestRefuse(t *testing.T) {
	p, _ := start(t)
	present := dial(t, p)
	present.send("x")
	present.want("x")
	p.Refuse(true)
	present.closed()
	dial(t, p).closed()
	p.Refuse(false)
	c := dial(t, p)
	c.send("y")
	c.want("y")
}

func TestCutBefore(t *testing.T) {
	p, e := start(t)
	c := dial(t, p)
	p.OnRequest(on("write", CutBefore))
	c.send("read ")
	c.want("read ")
	c.send("write")
	c.closed()
	testkit.Eventually(t, "the end of the server's connection", func() bool { return e.conns() == 0 })
	if got := e.got(); got != "read " {
		t.Errorf("the server got %q", got)
	}
	p.OnRequest(nil)
	c = dial(t, p)
	c.send("write")
	c.want("write")
}

func TestCutAfter(t *testing.T) {
	p, e := start(t)
	c, other := dial(t, p), dial(t, p)
	p.OnRequest(on("write", CutAfter))
	c.send("read ")
	c.want("read ")
	c.send("write")
	c.closed()
	if got := e.got(); got != "read write" {
		t.Errorf("the server got %q", got)
	}
	other.send("read")
	other.want("read")
}

func TestDrop(t *testing.T) {
	p, e := start(t)
	c := dial(t, p)
	p.OnRequest(on("write", Drop))
	c.send("write")
	c.silent()
	c.send("read")
	c.want("read")
	if got := e.got(); got != "read" {
		t.Errorf("the server got %q", got)
	}
}

// on is an action for the chunks that contain a text.
func on(text string, a Action) func([]byte) Action {
	return func(data []byte) Action {
		if bytes.Contains(data, []byte(text)) {
			return a
		}
		return Forward
	}
}
