package zookeeper

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/tests/daemon"
)

type silent struct{}

func (silent) Printf(string, ...any) {}

// The tests of crashes rest on this: a killed server keeps what it acknowledged, and a frozen one
// answers nothing.
func TestServer(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := New(t)
	connect := func() *zk.Conn {
		t.Helper()
		conn, _, err := zk.Connect([]string{s.Addr()}, 10*time.Second, zk.WithLogger(silent{}))
		must(err)
		return conn
	}
	conn := connect()
	_, err := conn.Create("/node", []byte("kept"), 0, zk.WorldACL(zk.PermAll))
	must(err)
	conn.Close() // before the server ends: it would wait for a second

	must(s.Kill())
	l, err := net.Listen("tcp", s.Addr())
	must(err)
	if err := s.Start(); !errors.Is(err, daemon.ErrPortTaken) {
		t.Errorf("it started on a taken port: %v", err)
	}
	l.Close()
	must(s.Start())
	conn = connect()
	defer conn.Close()
	if data, _, err := conn.Get("/node"); err != nil || string(data) != "kept" {
		t.Fatalf("after a kill the node has %q (%v)", data, err)
	}

	must(s.Freeze())
	answer := make(chan error, 1)
	go func() {
		_, _, err := conn.Get("/")
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Errorf("a frozen server answers: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	must(s.Thaw())
	must(<-answer)
}
