package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// dial opens a connection to the server at url, to write on it what no client would.
func dial(t *testing.T, url string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

const oneID = "GET /api/segment/get/order HTTP/1.1\r\nHost: localhost\r\n\r\n"

// ask writes a request and returns the answer.
func ask(t *testing.T, c net.Conn, request string) (status int, body string) {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

// wantClosed fails the test if the server does not close the connection.
func wantClosed(t *testing.T, c net.Conn, why string) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Errorf("%s: the connection stays open", why)
	}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

func TestSlowCallersAreCutOff(t *testing.T) {
	t.Parallel()
	s := serve(t, &fakeGenerator{initialised: true}, func(c *Config) { c.Listener = listen(t) })
	s.server.ReadHeaderTimeout /= 100 // to 50 ms
	s.server.ReadTimeout /= 100
	s.server.IdleTimeout /= 1000
	url, _ := run(t, s)
	for why, text := range map[string]string{
		"nothing is sent":      "",
		"the header is slow":   "GET / HTTP/1.1\r\nHost: loc",
		"the body never comes": "GET /api/segment/get/order HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"nothing follows":      oneID,
	} {
		c := dial(t, url)
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, c, why)
	}
}

// A caller that asks and does not read holds its connection only for a while.
func TestCallersThatDoNotRead(t *testing.T) {
	t.Parallel()
	s := serve(t, &fakeGenerator{initialised: true}, func(c *Config) { c.Listener = listen(t) })
	s.server.WriteTimeout /= 90 // to 1 s: a busy machine may take a while for an answer that is read
	s.conns = 1
	url, _ := run(t, s)
	page := strings.Replace(oneID, "/api/segment/get/order", "/dashboard/style.css", 1)
	hog := dial(t, url)
	for err := error(nil); err == nil; { // until the answers fill all that is between
		if err = hog.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err == nil {
			_, err = io.WriteString(hog, page)
		}
	}
	if status, _ := ask(t, dial(t, url), oneID); status != 200 { // there is room for one
		t.Fatal(status)
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	s := serve(t, &fakeGenerator{initialised: true}, func(c *Config) { c.Listener = listen(t) })
	s.conns = 2
	url, _ := run(t, s)
	first, second := dial(t, url), dial(t, url)
	for _, c := range []net.Conn{first, second} {
		if status, _ := ask(t, c, oneID); status != 200 {
			t.Fatal(status)
		}
	}
	third := dial(t, url) // the kernel takes it, and it waits there
	if _, err := io.WriteString(third, oneID); err != nil {
		t.Fatal(err)
	}
	if status, body := ask(t, second, oneID); status != 200 || body != "3" {
		t.Errorf("%d %q while another waits", status, body)
	}
	first.Close()
	answer, err := http.ReadResponse(bufio.NewReader(third), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	if string(body) != "4" { // not before there was room
		t.Errorf("the third got %q", body)
	}
}

func TestSizeOfHeader(t *testing.T) {
	t.Parallel()
	g := &fakeGenerator{initialised: true}
	url, _ := run(t, serve(t, g, func(c *Config) { c.Listener = listen(t) }))
	c := dial(t, url)
	_, _ = io.WriteString(c, strings.Replace(oneID, "\r\n\r\n", "\r\nX-Long: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n", 1))
	wantClosed(t, c, "the header is too large")
	if g.next != 0 {
		t.Errorf("%d IDs were taken", g.next)
	}
}

// slow gives IDs when it is told to.
type slow struct {
	fakeGenerator
	asked, give chan struct{}
}

func (g *slow) Take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	g.asked <- struct{}{}
	<-g.give
	return g.fakeGenerator.Take(ctx, tag, n)
}

// A stop answers what is under way, and takes nothing new.
func TestStop(t *testing.T) {
	t.Parallel()
	g := &slow{fakeGenerator{initialised: true}, make(chan struct{}), make(chan struct{})}
	s := serve(t, g, func(c *Config) { c.Listener, c.DrainTimeout = listen(t), testkit.Patience })
	url, stop := run(t, s)
	waiting, idle, unused := dial(t, url), dial(t, url), dial(t, url)
	if status, _ := ask(t, idle, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); status != 200 {
		t.Fatal(status)
	}
	if _, err := io.WriteString(waiting, oneID); err != nil {
		t.Fatal(err)
	}
	<-g.asked
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	wantClosed(t, idle, "nothing is under way")
	wantClosed(t, unused, "nothing came")
	if c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
		c.Close()
		t.Error("a new connection was taken")
	}
	close(g.give)
	answer, err := http.ReadResponse(bufio.NewReader(waiting), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(answer.Body); string(body) != "1" {
		t.Errorf("the request that was under way got %q", body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A stop does not wait for ever.
func TestStopInTheEnd(t *testing.T) {
	t.Parallel()
	g := &slow{fakeGenerator{initialised: true}, make(chan struct{}), make(chan struct{})}
	s := serve(t, g, func(c *Config) { c.Listener, c.DrainTimeout = listen(t), time.Millisecond-refusing })
	url, stop := run(t, s)
	waiting := dial(t, url)
	if _, err := io.WriteString(waiting, oneID); err != nil {
		t.Fatal(err)
	}
	<-g.asked
	if err := stop(); err != nil {
		t.Error(err)
	}
	wantClosed(t, waiting, "the time is up")
	close(g.give)
}
