package zookeeper

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/tests/daemon"
)

// Ensemble is three servers that keep the same data while two of them run.
type Ensemble struct {
	Servers [3]*Server
}

// NewEnsemble starts three servers that end with the test. They serve, and one
// of them leads.
func NewEnsemble(tb testing.TB) *Ensemble {
	tb.Helper()
	e, err := startEnsemble(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.kill)
	return e
}

func startEnsemble(dir string) (*Ensemble, error) {
	e := new(Ensemble)
	for i := range e.Servers {
		s, err := newServer(dir)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(s.data(), "myid"), []byte(strconv.Itoa(i+1)), 0o600); err != nil {
			return nil, err
		}
		e.Servers[i] = s
	}
	for _, s := range e.Servers {
		s.members = e.Servers[:]
	}
	err := daemon.OnFreePorts(9, func(addrs []string) error {
		err := e.start(addrs)
		if err != nil {
			e.kill()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// start runs all servers before it waits for one: none serves alone.
func (e *Ensemble) start(addrs []string) error {
	clients, peers := addrs[:3], strings.Builder{}
	for i := range e.Servers {
		// Followers connect to the first address of their leader, and whoever
		// votes to the second of everybody.
		_, election, err := net.SplitHostPort(addrs[6+i])
		if err != nil {
			return err
		}
		fmt.Fprintf(&peers, "server.%d=%s:%s\n", i+1, addrs[3+i], election)
	}
	for i, s := range e.Servers {
		s.addr = clients[i]
		if err := s.configure(peers.String()); err != nil {
			return err
		}
		if err := s.launch(); err != nil {
			return err
		}
	}
	return e.Servers[0].await()
}

func (e *Ensemble) kill() {
	for _, s := range e.Servers {
		s.kill()
	}
}

// Hosts is the addresses of all servers, with commas between them.
func (e *Ensemble) Hosts() string {
	var addrs []string
	for _, s := range e.Servers {
		addrs = append(addrs, s.addr)
	}
	return strings.Join(addrs, ",")
}

// Leader is the server that leads. It waits for the end of an election, and
// fails at once where too few servers run to hold one. One that has hung and
// does not know yet that another leads may still say that it does.
func (e *Ensemble) Leader() (*Server, error) {
	looks := time.NewTicker(10 * time.Millisecond)
	defer looks.Stop()
	for deadline := time.Now().Add(daemon.Patience); ; <-looks.C {
		running := e.Servers[0].running()
		if len(running) < 2 {
			return nil, fmt.Errorf("%d of 3 servers run, which cannot elect a leader", len(running))
		}
		for _, s := range running {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err := s.leads(ctx)
			cancel()
			if err == nil {
				return s, nil
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no server leads after %v", daemon.Patience)
		}
	}
}
