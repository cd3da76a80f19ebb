package natsversion

import (
	"bufio"
	"bytes"
	"context"
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

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// fake is a NATS server that greets, and answers PING. It can say that it is of any version.
type fake struct {
	listener net.Listener
	address  string
	greeting string

	mu       sync.Mutex
	conns    []net.Conn
	received bytes.Buffer
}

// startFake starts a server of a version, in a cluster with these other servers.
func startFake(t *testing.T, address, version string, others ...string) *fake {
	t.Helper()
	return startGreeting(t, address, infoOf(version, others...))
}

func startGreeting(t *testing.T, address, greeting string) *fake {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{listener: l, address: l.Addr().String(), greeting: greeting}
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
	t.Cleanup(func() {
		f.stop()
		serving.Wait()
	})
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

// say sends a line to all that are connected.
func (f *fake) say(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		_, _ = io.WriteString(conn, line)
	}
}

// got returns what clients have sent.
func (f *fake) got() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received.String()
}

func (f *fake) serve(conn net.Conn) {
	defer conn.Close()
	if _, err := io.WriteString(conn, f.greeting); err != nil {
		return
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		f.mu.Lock()
		f.received.WriteString(lines.Text() + "\n")
		f.mu.Unlock()
		if lines.Text() == "PING" {
			_, _ = io.WriteString(conn, "PONG\r\n")
		}
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
	log *lines
}

// lines is a log that several goroutines write.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func connect(t *testing.T, servers ...string) (*watched, error) {
	t.Helper()
	w := &watched{log: &lines{}}
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

// wantRefusal demands a Refusal that names a server and its version.
func wantRefusal(t *testing.T, err error, f *fake, version string) {
	t.Helper()
	if _, ok := errors.AsType[Refusal](err); !ok || !strings.Contains(err.Error(), "n1 at "+f.address) || !strings.Contains(err.Error(), version) {
		t.Errorf("%v, want a refusal of %s with version %s", err, f.address, version)
	}
}

func TestOldServerIsRefused(t *testing.T) {
	old := startFake(t, "127.0.0.1:0", "2.9.20")
	_, err := connect(t, old.url())
	wantRefusal(t, err, old, "2.9.20")
	if got := old.got(); got != "" {
		t.Errorf("the old server was sent %q", got)
	}
	_, err = connect(t, old.url(), startFake(t, "127.0.0.1:0", "2.11.9").url()) // nats.go would take the other
	wantRefusal(t, err, old, "2.9.20")
}

func TestOldServerOfTheClusterIsRefused(t *testing.T) {
	old := startFake(t, "127.0.0.1:0", "2.9.20")
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

// A server that does not answer, or has no greeting of NATS, is no reason to refuse.
func TestUnknownVersionIsAWarning(t *testing.T) {
	none := testkit.FreeAddress(t)
	other := startGreeting(t, "127.0.0.1:0", "HTTP/1.1 400 Bad Request\r\n")
	older := startFake(t, "127.0.0.1:0", "2.10.29")
	good := startFake(t, "127.0.0.1:0", "2.10.29", none, other.address, older.address)
	w, err := connect(t, good.url())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing new to say
		if err := w.Check(t.Context(), w.nc, w.js); err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range []string{none, other.address} {
		if n := strings.Count(w.log.String(), "is not known: make sure that it is 2.9.21 or later\" server="+address); n != 1 {
			t.Errorf("%d warnings of %s, want one:\n%s", n, address, w.log)
		}
	}
	for _, address := range []string{good.address, older.address} {
		if n := strings.Count(w.log.String(), `server="n1 at `+address+`" version=2.10.29`); n != 1 {
			t.Errorf("%d warnings of %s, want one:\n%s", n, address, w.log)
		}
	}
	if n := strings.Count(w.log.String(), "\n"); n != 4 {
		t.Errorf("%d lines, want 4:\n%s", n, w.log)
	}
}

// running is a Watch that runs.
func running(t *testing.T, w *watched) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { ended <- w.Run(ctx, w.nc, w.js) }()
	return ended
}

func await(t *testing.T, ended chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("it still runs")
		return nil
	}
}

func TestReconnectToAnOldServer(t *testing.T) {
	for name, another := range map[string]bool{"in its place": false, "elsewhere": true} {
		good := startFake(t, "127.0.0.1:0", "2.11.9")
		address := good.address
		servers := []string{good.url()}
		if another {
			address = testkit.FreeAddress(t)
			servers = append(servers, "nats://"+address)
		}
		w, err := connect(t, servers...)
		if err != nil {
			t.Fatal(name, err)
		}
		ended := running(t, w)
		good.listener.Close()
		old := startFake(t, address, "2.9.20")
		good.stop()
		wantRefusal(t, await(t, ended), old, "2.9.20")
		if !w.nc.IsClosed() {
			t.Error(name, "the connection is open")
		}
		if got := old.got(); got != "" {
			t.Errorf("%s: the old server was sent %q", name, got)
		}
	}
}

// A server of the cluster is replaced by an old one while the own connection stays.
func TestOldServerAppears(t *testing.T) {
	good := startFake(t, "127.0.0.1:0", "2.10.29")
	w, err := connect(t, good.url())
	if err != nil {
		t.Fatal(err)
	}
	ended := running(t, w)
	old := startFake(t, "127.0.0.1:0", "2.9.20")
	good.say(infoOf("2.10.29", good.address, old.address))
	wantRefusal(t, await(t, ended), old, "2.9.20")
	if !w.nc.IsClosed() {
		t.Error("the connection is open")
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	w, err := connect(t, startFake(t, "127.0.0.1:0", "2.11.9").url())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx, w.nc, w.js); err != nil {
		t.Error(err)
	}
	if w.nc.IsClosed() {
		t.Error("the connection is closed")
	}
}

// What is no greeting is left to nats.go, which knows what to say of it.
func TestNoGreeting(t *testing.T) {
	for info, want := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n": "INFO",
		"INFO {\r\n":                   "JSON",
	} {
		f := startGreeting(t, "127.0.0.1:0", info)
		if _, err := connect(t, f.url()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", info, err, want)
		}
	}
	silent := startGreeting(t, "127.0.0.1:0", "")
	d := dialer{50 * time.Millisecond, func(string, greeting) error { return nil }}
	if _, err := d.Dial("tcp", silent.address); err == nil {
		t.Error("connected to a server that does not greet")
	} else if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		t.Errorf("%v, want a timeout", err)
	}
}

// The greeting comes in pieces, with more behind it, and all of it is handed on.
func TestGreetingIsHandedOn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	long := `INFO {"version":"2.11.9","server_id":"` + strings.Repeat("x", 10000) + "\"}\r\nPING\r\n"
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for text := range strings.SplitSeq(long, "x") {
			_, _ = io.WriteString(conn, text+"x")
		}
	}()
	var g greeting
	conn, err := dialer{5 * time.Second, func(_ string, got greeting) error { g = got; return nil }}.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text, err := io.ReadAll(conn)
	if err != nil || string(text) != long+"x" || g.Version != "2.11.9" {
		t.Errorf("%d bytes, %v, version %q", len(text), err, g.Version)
	}
}

// The leader of a bucket is checked even if it cannot be reached.
func TestLeaders(t *testing.T) {
	server := natskit.Start(t)
	w, err := connect(t, server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bus.BucketTags}); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(t.Context(), w.nc, w.js); err != nil || w.log.String() != "" {
		t.Errorf("%v, and the log says %s", err, w.log)
	}

	// A server before 2.11 describes a stream without its version.
	_, err = w.nc.Subscribe("old.STREAM.INFO.KV_"+bus.BucketTags, func(msg *nats.Msg) {
		_ = msg.Respond([]byte(`{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"KV_LEAF_TAGS"},"cluster":{"leader":"far"}}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.js, err = jetstream.NewWithAPIPrefix(w.nc, "old"); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(t.Context(), w.nc, w.js); err != nil || !strings.Contains(w.log.String(), "bucket=LEAF_TAGS server=far") {
		t.Errorf("%v, and the log says %s", err, w.log)
	}
}

// Servers that demand TLS are asked seldom, also where the own connection, in memory, has none.
func TestServersWithTLSAreAskedSeldom(t *testing.T) {
	secure := startGreeting(t, "127.0.0.1:0", strings.Replace(infoOf("2.11.9"), "{", `{"tls_required":true,`, 1))
	w, err := connect(t, startFake(t, "127.0.0.1:0", "2.11.9", secure.address).url())
	if err != nil {
		t.Fatal(err)
	}
	if every := w.every(); every != checkEvery {
		t.Errorf("without TLS they are asked every %v", every)
	}
	if err := w.Check(t.Context(), w.nc, w.js); err != nil {
		t.Fatal(err)
	}
	if every := w.every(); every != checkTLSEvery {
		t.Errorf("a server demands TLS, and is asked every %v", every)
	}
}
