package main

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/natsversion"
	"github.com/leafbus/leafbus/internal/testkit"
)

// hanging forwards connections to a NATS server until it hangs: from then on it reads nothing, passes
// nothing on, and closes nothing.
type hanging struct {
	l       net.Listener
	running sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	hangs chan struct{} // closed when it hangs
}

func startHanging(t *testing.T, target string) *hanging {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hanging{l: l, hangs: make(chan struct{})}
	h.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.conns = append(h.conns, conn)
			select {
			case <-h.hangs:
			default:
				to, err := net.Dial("tcp", target)
				if err == nil {
					h.conns = append(h.conns, to)
					h.running.Go(func() { h.forward(to, conn) })
					h.running.Go(func() { h.forward(conn, to) })
				}
			}
			h.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		l.Close()
		h.mu.Lock()
		for _, conn := range h.conns {
			conn.Close()
		}
		h.mu.Unlock()
		h.running.Wait()
	})
	return h
}

func (h *hanging) forward(to, from net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		select {
		case <-h.hangs:
			return
		default:
		}
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// A generator's connection goes to another server of its list within 5 s when its server hangs. It does so
// also while a write hangs, because the socket's buffers are full.
func TestConnectionLeavesAServerThatHangs(t *testing.T) {
	cleanEnv(t)
	for _, writes := range []bool{false, true} {
		name := map[bool]string{false: "nothing to write", true: "a write hangs"}[writes]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad, good := startNATS(t, &server.Options{}), startNATS(t, &server.Options{})
			h := startHanging(t, bad.Addr().String())
			flags := connFlags{server: "nats://" + h.l.Addr().String() + "," + good.ClientURL(), timeout: 5 * time.Second}
			opts, err := flags.options("test")
			if err != nil {
				t.Fatal(err)
			}
			reconnected := make(chan struct{}, 1)
			nc, err := natsversion.New(testkit.Quiet).Connect(flags.server, append(opts, nats.DontRandomize(), nats.ReconnectBufSize(-1),
				nats.ReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} }),
				nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			close(h.hangs)
			hung := time.Now()
			if writes {
				body := make([]byte, 64<<10)
				for range 1 << 10 { // more than any socket buffers
					if nc.Publish("x", body) != nil {
						break
					}
				}
				t.Logf("a write failed after %v", time.Since(hung).Round(time.Millisecond))
			}
			select {
			case <-reconnected:
			case <-time.After(testkit.Patience):
				t.Fatal("it stays with the server that hangs")
			}
			t.Logf("it was connected again after %v", time.Since(hung).Round(time.Millisecond))
			if at := nc.ConnectedUrl(); at != good.ClientURL() {
				t.Errorf("it is connected to %s", at)
			}
		})
	}
}
