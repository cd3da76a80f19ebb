package gateway

import (
	"io"
	"net"
	"net/http"
	"testing"
)

func TestUnusedConnections(t *testing.T) {
	t.Parallel()
	var u unused
	open := func(states ...http.ConnState) (here, there net.Conn) {
		here, there = net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		for _, s := range states {
			u.note(here, s)
		}
		return here, there
	}
	_, fresh := open(http.StateNew)
	used, user := open(http.StateNew, http.StateActive, http.StateIdle)
	open(http.StateNew, http.StateClosed)
	u.close()
	if _, err := fresh.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("one on which nothing came: %v", err)
	}
	go func() { _, _ = user.Read(make([]byte, 1)) }()
	if _, err := used.Write([]byte("x")); err != nil {
		t.Errorf("one that was used: %v", err)
	}
	kept := 0
	u.conns.Range(func(any, any) bool { kept++; return true })
	if kept != 1 {
		t.Errorf("%d are remembered, want the one that is new", kept)
	}
}
