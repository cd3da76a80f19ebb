package tests

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

const createdEmpty = "created an empty store"

// A stop says on which signal, and when it is over.
func TestStopIsLogged(t *testing.T) {
	t.Parallel()
	for sent, name := range map[os.Signal]string{syscall.SIGTERM: "SIGTERM", os.Interrupt: "SIGINT"} {
		g := embed(t)
		if text := g.stderr.String(); strings.Contains(text, "stopping: ") || strings.Contains(text, "msg=stopped") {
			t.Errorf("before the signal: %s", text)
		}
		g.signal(sent)
		if status := g.wait(patience); status != 0 {
			t.Errorf("exit status %d", status)
		}
		var said []string
		for line := range strings.Lines(g.stderr.String()) {
			if strings.Contains(line, "level=INFO") && (strings.Contains(line, "stopping: ") || strings.Contains(line, "stopped")) {
				said = append(said, line)
			}
		}
		if len(said) != 2 || !strings.Contains(said[0], "signal="+name) || !strings.Contains(said[1], "msg=stopped") {
			t.Errorf("on %s: %q", name, said)
		}
	}
	// What ends by itself has not been told to.
	r := leaf(t, "serve", "--http", "", "--listen", "127.0.0.1:0", "--nats-config", "none.conf")
	if r.want(t, 1); strings.Contains(r.stderr, "stopped") {
		t.Errorf("stderr says %s", r.stderr)
	}
}

// A store that was created is said when there is one, and by who has one.
func TestEmptyStoreIsSaidWhenItIsThere(t *testing.T) {
	t.Parallel()
	busy := embed(t, "--tag", "order")
	address := strings.TrimPrefix(busy.url, "nats://")
	if text := busy.stderr.String(); strings.Count(text, createdEmpty) != 1 || !strings.Contains(text, "dir="+busy.folder) {
		t.Errorf("an own store: %s", text)
	}
	joined := serve(t, t.TempDir(), "-s", busy.url)
	if text := joined.stderr.String(); strings.Contains(text, createdEmpty) {
		t.Errorf("one that joined: %s", text)
	}

	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.conf")
	writeFile(t, bad, "port: many")
	cert := filepath.Join(dir, "cert.pem")
	writeFile(t, cert, "no certificate")
	for name, args := range map[string][]string{
		"address in use":      {"--http", "", "--listen", address},
		"HTTP's is in use":    {"--http", address, "--listen", "127.0.0.1:0"},
		"bad configuration":   {"--http", "", "--nats-config", bad},
		"no such certificate": {"--http", "127.0.0.1:0", "--http-tlscert", cert, "--http-tlskey", cert, "--listen", "127.0.0.1:0"},
	} {
		r := runLeaf(t, command(t, dir, nil, append([]string{"serve"}, args...)))
		if strings.Contains(r.stderr, createdEmpty) || r.status == 0 {
			t.Errorf("%s: status %d: %s", name, r.status, r.stderr)
		}
	}
	g := serve(t, dir, "--listen", "127.0.0.1:0") // the same folder, which has nothing yet
	if text := g.stderr.String(); strings.Count(text, createdEmpty) != 1 {
		t.Errorf("after those failures: %s", text)
	}
	g.stop()
	if g = g.again(t); strings.Contains(g.stderr.String(), createdEmpty) {
		t.Errorf("after a restart: %s", g.stderr.String())
	}
	g.stop()
}

// A mistyped layout is said to be that, and nothing of a worker of somebody else.
func TestMistypedLayout(t *testing.T) {
	t.Parallel()
	g := embed(t)
	testkit.Eventually(t, "a worker", func() bool { return len(holders(t, client(t, g.url))) == 1 })
	g.stop()
	r := runLeaf(t, command(t, g.dir, nil, []string{"serve", "--http", "", "--listen", "127.0.0.1:0", "--worker-bits", "5"}))
	r.want(t, 1, "--worker-bits")
	if strings.Contains(r.stderr, "another's") {
		t.Errorf("stderr says %s", r.stderr)
	}
	worker := func() string { return leafOK(t, "workers", "-s", g.url) }
	g = g.again(t)
	testkit.Eventually(t, "the worker again", func() bool { return strings.Contains(worker(), g.node) })
	g.stop()
}
