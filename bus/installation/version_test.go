package installation

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
)

// fake is a NATS server that greets, and answers PING. It can say that it is of any version.
type fake struct {
	listener net.Listener
	version  string

	mu    sync.Mutex
	conns []net.Conn
	slow  int // so many clients get a PING before their PONG, as from a server that was slow
}

func startFake(t *testing.T, address, version string) *fake {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{listener: l, version: version}
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

func (f *fake) address() string { return f.listener.Addr().String() }

func (f *fake) serve(conn net.Conn) {
	defer conn.Close()
	fmt.Fprintf(conn, `INFO {"server_id":"%s","server_name":"n1","version":%q,"proto":1,"headers":true,"max_payload":1048576}`+"\r\n",
		rand.Text(), f.version)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		f.mu.Lock()
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

// safeBuffer is a bytes.Buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func connect(t *testing.T, log io.Writer, servers ...string) (*nats.Conn, error) {
	t.Helper()
	nc, err := Connect(slog.New(slog.NewTextHandler(log, nil)), strings.Join(servers, ","), nats.Timeout(5*time.Second),
		nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond), nats.DontRandomize())
	if err == nil {
		t.Cleanup(nc.Close)
	}
	return nc, err
}

// An old server is refused at the start.
func TestOldServerIsNotUsed(t *testing.T) {
	old := startFake(t, "127.0.0.1:0", "2.10.29")
	_, err := connect(t, io.Discard, old.address())
	if _, ok := errors.AsType[TooOld](err); !ok || !strings.Contains(err.Error(), "n1 at nats://"+old.address()) {
		t.Errorf("%v, want a refusal of %s", err, old.address())
	}
}

// A connection does not stay at an old server, but goes to the next one that is new enough.
func TestOldServerLater(t *testing.T) {
	good, address := startFake(t, "127.0.0.1:0", "2.11.9"), testkit.FreeAddress(t)
	var log safeBuffer
	nc, err := connect(t, &log, good.address(), address)
	if err != nil {
		t.Fatal(err)
	}
	good.stop()
	old := startFake(t, good.address(), "2.9.20")
	testkit.Eventually(t, "the old server is named", func() bool {
		return strings.Contains(log.String(), "n1 at nats://"+old.address())
	})
	startFake(t, address, "2.11.9")
	testkit.Eventually(t, "it is connected to the other server", func() bool {
		return nc.IsConnected() && strings.Contains(nc.ConnectedUrl(), address)
	})
}

// A server that was slow is connected to at the next try. One that always is gets no more than some.
func TestConnectToASlowServer(t *testing.T) {
	for tries, ok := range map[int]bool{1: true, slowTries - 1: true, slowTries: false} {
		slow := startFake(t, "127.0.0.1:0", "2.11.9")
		slow.mu.Lock()
		slow.slow = tries
		slow.mu.Unlock()
		if _, err := connect(t, io.Discard, slow.address()); (err == nil) != ok {
			t.Errorf("after %d slow greetings: %v", tries, err)
		}
	}
}

// A server that is too old, or names no version, is refused with a sentence that names both and says what to do.
func TestCheckVersion(t *testing.T) {
	for _, version := range []string{"2.11.0", "2.11", "v2.11.9", "2.11.0+custom", "2.12.0-dev", "3.0.0-alpha.1", "10.0.0"} {
		if err := checkVersion("a", version); err != nil {
			t.Error(err)
		}
	}
	for _, version := range []string{
		"2.10.29", "2.9.21", "2.11.0-RC.1", "1.99.0", // pre-releases were made before and after a fix
		"", "dev", "vv2.11.9", "2.11.9.1", "2.011.9", "-2.11.9", "2.11.9 ", "nats-2.11.9", "2.x", "2.11.9-", "2.11.9\n2.9.20",
	} {
		err := checkVersion("a at 10.0.0.5:4222", version)
		if _, ok := errors.AsType[TooOld](err); !ok || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), ". ") {
			t.Errorf("%q: %v is no refusal in one sentence", version, err)
			continue
		}
		for _, part := range []string{"a at 10.0.0.5:4222", strings.Trim(fmt.Sprintf("%q", version), `"`), "2.11.0 or later"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q does not say %q", version, err, part)
			}
		}
	}
}

// Whatever a server says, it is refused or 2.11.0 at least.
func FuzzCheckVersion(f *testing.F) {
	for _, seed := range []string{"2.10.29", "2.11.0", "2.11.0-RC.1", "dev", "", "2.11.0-0+b", "3", "99999999999999999999.0.0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, version string) {
		if checkVersion("a", version) != nil {
			return
		}
		core, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+")
		core, _, _ = strings.Cut(core, "-")
		numbers := make([]uint64, 3)
		for i, digits := range strings.SplitN(core, ".", 3) {
			numbers[i], _ = strconv.ParseUint(digits, 10, 64) // the largest, if it does not fit
		}
		if slices.Compare(numbers, []uint64{2, 11, 0}) < 0 {
			t.Errorf("%q is fit", version)
		}
	})
}
