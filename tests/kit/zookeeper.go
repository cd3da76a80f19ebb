package kit

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// zooKeeperEnv is the addresses of a server or ensemble for [ZooKeeperHosts].
const zooKeeperEnv = "LEAF_TEST_ZOOKEEPER"

// zooKeeperConfig is what all servers have. Sessions may expire after 1 to 10 s. A leader that hangs is
// replaced after 3 s. Commits are written and not forced to the disk: a killed process loses nothing by that,
// and one slow disk cannot stop all tests for longer than their sessions last.
const zooKeeperConfig = `tickTime=500
initLimit=20
syncLimit=6
forceSync=no
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=conf,srvr
clientPortAddress=127.0.0.1
`

// zooKeeperJars are where Debian keeps them. The first names all others that it needs, and the second lets it
// log to stderr.
var zooKeeperJars = []string{"/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"}

var sharedZooKeeper = shared[*ZooKeeper]{start: startZooKeeper}

// ZooKeeper is a server on 127.0.0.1: one alone, or a member of an ensemble of three. The methods of its
// Process kill and freeze it.
type ZooKeeper struct {
	*Process        // the last run
	folder   string // with the data, the configuration and the log
	addr     string
	members  Ensemble // itself for one alone
}

// NewZooKeeper starts a server that ends with the test, for tests that kill or freeze it. Others share one:
// see [ZooKeeperHosts].
func NewZooKeeper(tb testing.TB) *ZooKeeper {
	tb.Helper()
	s, err := startZooKeeper(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// ZooKeeperHosts is the addresses, joined by commas, in the environment variable LEAF_TEST_ZOOKEEPER, or else
// the address of a server that all tests of a binary share. It may have nodes already: make your own beneath
// one with a name of its own.
func ZooKeeperHosts(tb testing.TB) string {
	tb.Helper()
	if hosts := os.Getenv(zooKeeperEnv); hosts != "" {
		return hosts
	}
	return sharedZooKeeper.get(tb).Addr()
}

func startZooKeeper(dir string) (*ZooKeeper, error) {
	all, err := startZooKeepers(dir, 1)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Ensemble is servers that keep the same data while most of them run.
type Ensemble []*ZooKeeper

// NewEnsemble starts three servers that end with the test.
func NewEnsemble(tb testing.TB) Ensemble {
	tb.Helper()
	all, err := startZooKeepers(tb.TempDir(), 3)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(all.close)
	return all
}

func (e Ensemble) close() {
	for _, s := range e {
		_ = s.Close() // always nil
	}
}

// Hosts is the addresses of all servers, joined by commas.
func (e Ensemble) Hosts() string {
	var addrs []string
	for _, s := range e {
		addrs = append(addrs, s.addr)
	}
	return strings.Join(addrs, ",")
}

func startZooKeepers(dir string, n int) (Ensemble, error) {
	all := make(Ensemble, n)
	for i := range all {
		folder, err := newFolder(dir, "zookeeper-")
		if err != nil {
			return nil, err
		}
		all[i] = &ZooKeeper{folder: folder, members: all}
		if err := os.Mkdir(all[i].path("data"), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(all[i].path("data/myid"), []byte(strconv.Itoa(i+1)), 0o600); err != nil {
			return nil, err
		}
	}
	return all, onFreePorts(3*n, func(addrs []string) error {
		var peers strings.Builder
		for i := range all {
			// Followers connect to the first address of their leader, voters to the second of everybody.
			_, election, _ := net.SplitHostPort(addrs[2*n+i])
			if n > 1 {
				fmt.Fprintf(&peers, "server.%d=%s:%s\n", i+1, addrs[n+i], election)
			}
		}
		for i, s := range all { // none serves alone, so all are launched before one is awaited
			s.addr = addrs[i]
			_, port, _ := net.SplitHostPort(s.addr)
			text := fmt.Sprintf("%sdataDir=%s\nclientPort=%s\n%s", zooKeeperConfig, s.path("data"), port, &peers)
			if err := errors.Join(os.WriteFile(s.path("zoo.cfg"), []byte(text), 0o600), s.launch()); err != nil {
				all.close()
				return err
			}
		}
		err := all[0].await()
		if err != nil {
			all.close()
		}
		return err
	})
}

// Data is the folder with all that the server keeps. Change it while the server does not run.
func (s *ZooKeeper) Data() string { return s.path("data/version-2") }

func (s *ZooKeeper) path(name string) string { return filepath.Join(s.folder, name) }

// Addr is the server's host:port for clients, the same over all runs.
func (s *ZooKeeper) Addr() string { return s.addr }

// Run starts a server that has ended once more: same data, same address. It returns when the server and all
// members of its ensemble that run serve clients. No member does while no majority runs: then Run returns when
// the server waits for the others.
func (s *ZooKeeper) Run() error {
	if s.Process != nil && !s.Ended() {
		return errors.New("zookeeper runs already: Stop or Kill it first")
	}
	if err := s.launch(); err != nil {
		return err
	}
	if err := s.await(); err != nil {
		s.Process.Close()
		return err
	}
	return nil
}

func (s *ZooKeeper) launch() error {
	const remedy = "make test installs it"
	java, err := exec.LookPath("java")
	if err != nil {
		return fmt.Errorf("java is not installed: %s", remedy)
	}
	for _, jar := range zooKeeperJars {
		if _, err := os.Stat(jar); err != nil {
			return fmt.Errorf("%w: %s", err, remedy)
		}
	}
	cmd := exec.Command(java,
		// These make it start fast and stay small. A killed one leaves no file in the temporary folder.
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx128m", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		// Else the log ends with the questions of await.
		"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=warn",
		"-cp", strings.Join(zooKeeperJars, ":"), "org.apache.zookeeper.server.quorum.QuorumPeerMain", s.path("zoo.cfg"))
	cmd.Dir = s.folder // where java would write of its own crash
	s.Process, err = Launch(Program{
		Name: "zookeeper", Command: cmd, Log: s.path("log"), PortTaken: "java.net.BindException: Address already in use",
		Stopped: 143, // java's for SIGTERM
	})
	return err
}

// await waits as long as Run does.
func (s *ZooKeeper) await() error {
	running := s.running()
	if len(running) <= len(s.members)/2 {
		return s.Await(func(ctx context.Context) error {
			if err := s.serves(ctx); !errors.Is(err, errNotServing) {
				return err
			}
			return nil
		})
	}
	for _, member := range running {
		if err := member.Await(member.serves); err != nil {
			return err
		}
	}
	return nil
}

// running is the members that take part in their ensemble.
func (s *ZooKeeper) running() []*ZooKeeper {
	return slices.DeleteFunc(slices.Clone(s.members), func(m *ZooKeeper) bool { return m.Process == nil || !m.Running() })
}

// serves returns nil if the server serves clients. It asks for the data folder because another server may have
// taken the port.
func (s *ZooKeeper) serves(ctx context.Context) error {
	return s.ask(ctx, "conf", "dataDir="+s.Data())
}

// Leader is the server that leads. It waits for the end of an election.
func (e Ensemble) Leader() (*ZooKeeper, error) {
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, s := range e[0].running() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err := s.ask(ctx, "srvr", "Mode: leader")
			cancel()
			if err == nil {
				return s, nil
			}
		}
	}
	return nil, fmt.Errorf("no server leads after %v", Patience)
}

// errNotServing is the error of a server that answers clients, but does not serve them yet.
var errNotServing = errors.New("it does not serve requests yet")

// ask sends one of the commands of four letters, and returns nil if the answer has a certain line. It does not
// read on: a server that has just started sometimes leaves the connection open.
func (s *ZooKeeper) ask(ctx context.Context, command, line string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch lines.Text() {
		case line:
			return nil
		case "This ZooKeeper instance is not currently serving requests":
			return errNotServing
		}
	}
	return cmp.Or(lines.Err(), fmt.Errorf("%s does not answer %s with %q", s.addr, command, line))
}

// Close ends the server at once. The data stays. It may be called again.
func (s *ZooKeeper) Close() error {
	if s.Process != nil {
		s.Process.Close()
	}
	return nil
}
