package zookeeper

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/tests/daemon"
)

func TestMain(m *testing.M) {
	daemon.Orphan(func(dir string) (string, error) {
		s, err := start(dir)
		if err != nil {
			return "", err
		}
		return s.Addr(), nil
	})
	os.Exit(Main(m))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// connect returns a client that whoever called closes: after its server has
// ended that would last a second.
func connect(t *testing.T, hosts string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(strings.Split(hosts, ","), 10*time.Second, zk.WithLogger(silent{}))
	must(t, err)
	return conn
}

// write creates a node. No call is tried twice: servers serve when they are
// said to.
func write(t *testing.T, hosts, path string) {
	t.Helper()
	conn := connect(t, hosts)
	defer conn.Close()
	_, err := conn.Create(path, []byte(path), 0, zk.WorldACL(zk.PermAll))
	must(t, err)
}

// kept fails the test if a server does not know what was written.
func kept(t *testing.T, hosts, path string) {
	t.Helper()
	conn := connect(t, hosts)
	defer conn.Close()
	data, _, err := conn.Get(path)
	must(t, err)
	if string(data) != path {
		t.Errorf("%s has the data %q", path, data)
	}
}

func TestServerKeepsWhatItCommitted(t *testing.T) {
	s := New(t)
	addr := s.Addr()
	write(t, addr, "/node")
	for name, end := range map[string]func() error{"Kill": s.Kill, "Close": s.Close} {
		must(t, end())
		if c, err := net.Dial("tcp", s.Addr()); err == nil {
			c.Close()
			t.Fatalf("%s: the server still answers", name)
		}
		if err := s.Kill(); err == nil {
			t.Errorf("%s: a server that does not run was killed", name)
		}
		must(t, s.Close())
		must(t, s.Start())
		kept(t, addr, "/node")
	}
	if s.Addr() != addr {
		t.Errorf("the address changed from %s to %s", addr, s.Addr())
	}
	if err := s.Start(); err == nil {
		t.Error("a second server runs with the same data")
	}
	must(t, s.Freeze())
	must(t, s.Close())
	must(t, s.Start())
	kept(t, addr, "/node")
}

func TestFreeze(t *testing.T) {
	s := New(t)
	conn := connect(t, s.Addr())
	defer conn.Close()
	_, _, err := conn.Get("/")
	must(t, err)
	must(t, s.Freeze())
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
	must(t, s.Thaw())
	must(t, <-answer)
}

func TestManyClients(t *testing.T) {
	t.Setenv(hostsEnv, "")
	addr := Hosts(t)
	for range 100 {
		conn, err := net.Dial("tcp", addr)
		must(t, err)
		defer conn.Close()
	}
	conn := connect(t, addr)
	defer conn.Close()
	_, _, err := conn.Get("/")
	must(t, err)
}

func TestStartSaysWhy(t *testing.T) {
	s := New(t)
	must(t, s.Kill())
	must(t, s.configure("syncLimit=none\n"))
	if err := s.Start(); err == nil || !strings.Contains(err.Error(), `For input string: "none"`) {
		t.Errorf("the log is missing in: %v", err)
	}
}

func TestPortTaken(t *testing.T) {
	s := New(t)
	must(t, s.Kill())
	l, err := net.Listen("tcp", s.Addr())
	must(t, err)
	defer l.Close()
	if err := s.Start(); !errors.Is(err, daemon.ErrPortTaken) {
		t.Errorf("started on a taken port: %v", err)
	}
}

func TestMissingProgram(t *testing.T) {
	for _, missing := range []struct {
		java string
		jars []string
	}{{"java-that-nobody-has", jars}, {"java", append(jars, "/no/such.jar")}} {
		_, err := command(missing.java, missing.jars, "zoo.cfg")
		if err == nil || !strings.Contains(err.Error(), "tests/install.sh") {
			t.Errorf("want what to do, got: %v", err)
		}
	}
}

func TestHosts(t *testing.T) {
	t.Setenv(hostsEnv, "")
	shared := Hosts(t)
	if again := Hosts(t); again != shared {
		t.Errorf("two servers, %s and %s, are shared", shared, again)
	}
	t.Setenv(hostsEnv, "10.0.0.1:2181,10.0.0.2:2181")
	if got := Hosts(t); got != "10.0.0.1:2181,10.0.0.2:2181" {
		t.Errorf("%s is not that of %s", got, hostsEnv)
	}
}
