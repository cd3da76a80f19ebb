// Package zookeeper runs private ZooKeeper servers and ensembles for tests. They
// are real ones that can be killed, frozen and started again, and that keep
// what they have committed as one in production does.
package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/leafbus/leafbus/tests/daemon"
)

// common is the configuration that all servers have. Sessions may expire after
// 1 to 10 s. A leader that hangs is replaced after 3 s. Any number of clients
// may come from this machine. Commits are written to the files and not forced to
// the disk: a process that is killed loses nothing by that. Else one slow disk
// would stop all tests at once, for longer than their sessions last.
const common = `tickTime=500
initLimit=20
syncLimit=6
forceSync=no
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=conf,srvr
clientPortAddress=127.0.0.1
`

// Server is a ZooKeeper server on 127.0.0.1: one alone or a member of an
// ensemble. Addr may be called concurrently; what starts, stops and signals a
// server may not, nor for two members of an ensemble.
type Server struct {
	folder  string // with the data, the configuration and the log
	addr    string
	members []*Server       // of its ensemble, which is itself for one alone
	process *daemon.Process // the last one; nil if there was none
}

// start runs a server alone with a new folder in dir.
func start(dir string) (*Server, error) {
	s, err := newServer(dir)
	if err != nil {
		return nil, err
	}
	s.members = []*Server{s}
	err = daemon.OnFreePorts(1, func(addrs []string) error {
		s.addr = addrs[0]
		if err := s.configure(""); err != nil {
			return err
		}
		return s.Start()
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newServer(dir string) (*Server, error) {
	folder, err := daemon.NewFolder(dir, "zookeeper-")
	if err != nil {
		return nil, err
	}
	s := &Server{folder: folder}
	return s, os.Mkdir(s.data(), 0o700)
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

func (s *Server) config() string { return filepath.Join(s.folder, "zoo.cfg") }

// configure writes the configuration, to which an ensemble adds more.
func (s *Server) configure(more string) error {
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%sdataDir=%s\nclientPort=%s\n%s", common, s.data(), port, more)
	return os.WriteFile(s.config(), []byte(text), 0o600)
}

// Addr is the server's host:port for clients. It stays the same over runs.
func (s *Server) Addr() string { return s.addr }

// Start runs a server that has ended once more: same data, same address. It
// returns when the server serves clients, and so do all members of its ensemble
// that run. No member does while no majority runs: then Start returns when the
// server waits for the others.
func (s *Server) Start() error {
	if err := s.launch(); err != nil {
		return err
	}
	if err := s.await(); err != nil {
		s.process.Close()
		return err
	}
	return nil
}

func (s *Server) launch() error {
	if s.process != nil && !s.process.Ended() {
		return errors.New("zookeeper runs already: Close or Kill it first")
	}
	p, err := launch(s.folder, s.config(), filepath.Join(s.folder, "log"))
	if err != nil {
		return err
	}
	s.process = p
	return nil
}

// await waits as long as Start does.
func (s *Server) await() error {
	running := s.running()
	if len(running) <= len(s.members)/2 {
		return s.process.Await(s.answers)
	}
	for _, member := range running {
		if err := member.process.Await(member.serves); err != nil {
			return err
		}
	}
	return nil
}

// running is the members that take part in their ensemble.
func (s *Server) running() []*Server {
	return slices.DeleteFunc(slices.Clone(s.members), func(member *Server) bool {
		return member.process == nil || !member.process.Running()
	})
}

// answers is nil if the server answers, if only that it does not serve yet.
func (s *Server) answers(ctx context.Context) error {
	if err := s.serves(ctx); !errors.Is(err, errNotServing) {
		return err
	}
	return nil
}

// serves is nil if the server serves clients. It asks for the data folder
// because another server may have taken the port.
func (s *Server) serves(ctx context.Context) error {
	return ask(ctx, s.addr, "conf", "dataDir="+filepath.Join(s.data(), "version-2"))
}

// leads is nil if the server is the leader of its ensemble.
func (s *Server) leads(ctx context.Context) error {
	return ask(ctx, s.addr, "srvr", "Mode: leader")
}

// Kill ends the server at once, as kill -9 does, and waits for its end. The
// data stays. It is an error if the server had ended before.
func (s *Server) Kill() error { return s.process.Kill() }

// Freeze stops every thread of the server where it is, as if its machine hung:
// connections stay open and nothing is answered, until Thaw.
func (s *Server) Freeze() error { return s.process.Freeze() }

// Thaw lets a frozen server go on; it then answers what it was asked meanwhile.
func (s *Server) Thaw() error { return s.process.Thaw() }

// Close shuts the server down and waits for its end; a frozen one is killed.
// The data stays. Closing again does nothing.
func (s *Server) Close() error {
	if s.process == nil || !s.process.Running() {
		s.kill()
		return nil
	}
	return s.process.Stop()
}

// kill ends the server in whatever state it is.
func (s *Server) kill() {
	if s.process != nil {
		s.process.Close()
	}
}
