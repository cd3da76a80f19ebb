package natsversion

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/testkit"
)

// fake is a NATS server that greets, and answers PING. It can say that it is of any version.
type fake struct {
	listener net.Listener
	address  string
	greeting string

	mu       sync.Mutex
	conns    []net.Conn
	slow     int // so many clients get a PING before their PONG, as from a server that was slow
	received bytes.Buffer
}

// startFake starts a server of a version, in a cluster with these other servers.
func startFake(t *testing.T, address, version string, others ...string) *fake {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{listener: l, address: l.Addr().String(), greeting: infoOf(version, others...)}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, conn)
			f.mu.Unlock()
			serving.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() { f.stop(); serving.Wait() })
	return f
}

func infoOf(version string, others ...string) string {
	list := ""
	if len(others) > 0 {
		list = fmt.Sprintf(`,"connect_urls":["%s"]`, strings.Join(others, `","`))
	}
	return fmt.Sprintf(`INFO {"server_id":"%s","server_name":"n1","version":%q,"cluster":"c","proto":1,"headers":true,"max_payload":1048576%s}`+"\r\n", rand.Text(), version, list)
}

func (f *fake) url() string { return "nats://" + f.address }

func (f *fake) serve(conn net.Conn) {
	defer conn.Close()
	if _, err := io.WriteString(conn, f.greeting); err != nil {
		return
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		f.mu.Lock()
		f.received.WriteString(lines.Text() + "\n")
		answer := ""
		if lines.Text() == "PING" {
			answer = "PONG\r\n"
			if f.slow > 0 {
				f.slow--
				answer = "PING\r\nPONG\r\n"
			}
		}
		f.mu.Unlock()
		_, _ = io.WriteString(conn, answer)
	}
}

func (f *fake) stop() {
	f.listener.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		conn.Close()
	}
}

// watched is a connection and its Watch.
type watched struct {
	*Watch
	nc  *nats.Conn
	js  jetstream.JetStream
	log *bytes.Buffer
}

func connect(t *testing.T, servers ...string) (*watched, error) {
	t.Helper()
	w := &watched{log: &bytes.Buffer{}}
	w.Watch = New(slog.New(slog.NewTextHandler(w.log, nil)))
	var err error
	w.nc, err = w.Connect(strings.Join(servers, ","), nats.Timeout(5*time.Second), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond),
		nats.DontRandomize())
	if err != nil {
		return w, err
	}
	t.Cleanup(w.nc.Close)
	w.js, err = jetstream.New(w.nc)
	return w, err
}

// wantRefusal demands a Refusal that names a server and its version. The server got nothing.
func wantRefusal(t *testing.T, err error, f *fake, version string) {
	t.Helper()
	if _, ok := errors.AsType[Refusal](err); !ok || !strings.Contains(err.Error(), "n1 at "+f.address) || !strings.Contains(err.Error(), version) {
		t.Errorf("%v, want a refusal of %s with version %s", err, f.address, version)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.received.Len() > 0 {
		t.Errorf("the old server was sent %q", &f.received)
	}
}

func TestOldServerIsRefused(t *testing.T) {
	old := startFake(t, "127.0.0.1:0", "2.9.20")
	_, err := connect(t, old.url())
	wantRefusal(t, err, old, "2.9.20")
	_, err = connect(t, old.url(), startFake(t, "127.0.0.1:0", "2.11.9").url()) // nats.go would take the other
	wantRefusal(t, err, old, "2.9.20")
	for name, servers := range map[string][]string{
		"discovered": {startFake(t, "127.0.0.1:0", "2.10.29", old.address).url()},
		"named":      {startFake(t, "127.0.0.1:0", "2.10.29").url(), old.url()},
	} {
		w, err := connect(t, servers...)
		if err != nil {
			t.Fatal(name, err)
		}
		wantRefusal(t, w.Check(t.Context(), w.nc, w.js), old, "2.9.20")
	}
}

// A server that does not answer is no reason to refuse, and one before 2.11 neither. Each is a warning, once.
func TestUnknownVersionIsAWarning(t *testing.T) {
	none := testkit.FreeAddress(t)
	good := startFake(t, "127.0.0.1:0", "2.10.29", none)
	w, err := connect(t, good.url())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing new to say
		if err := w.Check(t.Context(), w.nc, w.js); err != nil {
			t.Fatal(err)
		}
	}
	for _, warning := range []string{"2.9.21 or later\" server=" + none, `server="n1 at ` + good.address + `" version=2.10.29`} {
		if strings.Count(w.log.String(), warning) != 1 || strings.Count(w.log.String(), "\n") != 2 {
			t.Errorf("want one warning %q:\n%s", warning, w.log)
		}
	}
}

// A connection ends that comes back at an old server, and one with which an old server shares a cluster.
func TestOldServerLater(t *testing.T) {
	for _, name := range []string{"in its place", "elsewhere", "beside it"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, address := startFake(t, "127.0.0.1:0", "2.11.9"), testkit.FreeAddress(t)
			servers := []string{good.url()}
			switch name {
			case "in its place":
				address = good.address
			case "elsewhere":
				servers = append(servers, "nats://"+address)
			}
			w, err := connect(t, servers...)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- w.Run(t.Context(), w.nc, w.js) }()
			if name != "beside it" {
				good.listener.Close()
			}
			old := startFake(t, address, "2.9.20")
			if name == "beside it" {
				good.mu.Lock()
				_, _ = io.WriteString(good.conns[0], infoOf("2.11.9", good.address, old.address))
				good.mu.Unlock()
			} else {
				good.stop()
			}
			select {
			case err = <-ended:
			case <-time.After(testkit.Patience):
				t.Fatal("it still runs")
			}
			wantRefusal(t, err, old, "2.9.20")
			if !w.nc.IsClosed() {
				t.Error("the connection is open")
			}
		})
	}
}

// A server that was slow is connected to at the next try. One that always is gets no more than some.
func TestConnectToASlowServer(t *testing.T) {
	for tries, ok := range map[int]bool{1: true, slowTries - 1: true, slowTries: false} {
		slow := startFake(t, "127.0.0.1:0", "2.11.9")
		slow.mu.Lock()
		slow.slow = tries
		slow.mu.Unlock()
		if _, err := connect(t, slow.url()); (err == nil) != ok {
			t.Errorf("after %d slow greetings: %v", tries, err)
		}
	}
}
