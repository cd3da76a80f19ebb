package tests

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// changingNATS is a NATS server that has JetStream at one time and none at another.
type changingNATS struct {
	t      *testing.T
	port   int
	folder string
	server *server.Server
}

func newChangingNATS(t *testing.T) *changingNATS {
	t.Helper()
	_, text, err := net.SplitHostPort(testkit.FreeAddress(t)) // no client's connection takes it while the server is away
	must(t, err)
	port, err := strconv.Atoi(text)
	must(t, err)
	n := &changingNATS{t: t, port: port, folder: t.TempDir()}
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *changingNATS) stop() {
	if n.server != nil {
		n.server.Shutdown()
		n.server.WaitForShutdown()
	}
}

// begin starts the server, again at the same address if it runs, and returns its URL.
func (n *changingNATS) begin(jetStream bool) string {
	n.t.Helper()
	n.stop()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: n.port, NoLog: true, NoSigs: true, JetStream: jetStream, StoreDir: n.folder,
	})
	must(n.t, err)
	s.Start()
	n.server = s
	if !s.ReadyForConnections(patience) {
		n.t.Fatal("the NATS server is not ready")
	}
	return s.ClientURL()
}

// plainNATS is a NATS server without JetStream. It returns its URL.
func plainNATS(t *testing.T) string {
	t.Helper()
	return newChangingNATS(t).begin(false)
}

// A generator that has never served was given the wrong NATS: it says what to do and ends.
func TestNewFolderWithoutJetStream(t *testing.T) {
	t.Parallel()
	url := plainNATS(t)
	began := time.Now()
	folder := filepath.Join(t.TempDir(), "data")
	refused := refusedStart(t, "-s", url, "--tag", "order", "--data-dir", folder)
	refused.want(t, 1, "the NATS server at "+url+" has no JetStream", "enable JetStream", "leave out --server")
	if refused.stdout != "" {
		t.Errorf("it said that it is ready: %s", refused.stdout)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it left its data folder: %v", err)
	}
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("it ended after %v: JetStream may come within 5 s of a cluster's start", took)
	}
}

// The account that the configuration of an embedded server gives to its generator has no JetStream.
func TestEmbeddedAccountWithoutJetStream(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, conf, "listen: \""+testkit.FreeAddress(t)+"\", accounts { A { users: [ { user: a, password: p } ] } }")
	refused := refusedStart(t, "--nats-config", conf, "--user", "a", "--password", "p", "--data-dir", filepath.Join(t.TempDir(), "data"))
	refused.want(t, 1, "has no JetStream", "for this account")
	if refused.stdout != "" {
		t.Errorf("it said that it is ready: %s", refused.stdout)
	}
}

// A JetStream that answers, if only with an error, is there: the generator waits for it.
func TestNewFolderWaitsForBusyJetStream(t *testing.T) {
	t.Parallel()
	n := newChangingNATS(t)
	url := n.begin(false)
	_, err := connect(t, url).Subscribe("$JS.API.>", func(msg *nats.Msg) {
		_ = msg.Respond([]byte(`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`))
	})
	must(t, err)
	g := serveLacking(t, "segments,snowflakes", t.TempDir(), "-s", url, "--tag", "order")
	n.begin(true)
	takeOne(t, bus.NewClient(connect(t, url)), "order")
	g.stop()
}

// A generator whose folder belongs to an installation waits for JetStream: also where NATS never
// had one when it started.
func TestFolderWaitsForJetStream(t *testing.T) {
	t.Parallel()
	n := newChangingNATS(t)
	url := n.begin(true)
	args := []string{"-s", url, "--tag", "order:10"}
	g := serve(t, t.TempDir(), args...)
	c := bus.NewClient(connect(t, url))
	first := takeOne(t, c, "order")
	g.stop()

	n.begin(false)
	g = serveLacking(t, "segments,snowflakes", g.dir, args...)
	testkit.Eventually(t, "it to say what it waits for", func() bool { return lacks(stateOf(t, c), "store", "waiting for JetStream") })
	n.begin(true)
	if id := takeOne(t, c, "order"); id <= first {
		t.Errorf("ID %d after %d", id, first)
	}
	testkit.Eventually(t, "nothing to be missing", func() bool { return stateOf(t, c).Ready })
	g.stop()
}
