//go:build compat

package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// beforeLedger is the last commit whose generators claim nothing. It is built from the history of this repository.
const beforeLedger = "9dde962"

// buildBeforeLedger returns the program leaf of that commit.
func buildBeforeLedger(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	must(t, os.Mkdir(source, 0o700))
	script := fmt.Sprintf(`set -e; git -C "$(git rev-parse --show-toplevel)" archive %s | tar -x -C %q; cd %q; go build -o ../leaf ./cmd/leaf`,
		beforeLedger, source, source)
	if out, err := exec.Command("bash", "-o", "pipefail", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("building commit %s: %v\n%s", beforeLedger, err, out)
	}
	return filepath.Join(dir, "leaf")
}

// serveOld starts a generator of the older version.
func (l *ledgered) serveOld(binary, dir, node string, args ...string) *generator {
	l.t.Helper()
	cmd := command(l.t, dir, nil, append([]string{"serve", "--http", "", "-s", l.url, "--mysql", l.dsn, "--node", node}, args...))
	cmd.Path, cmd.Args[0] = binary, binary
	return ready(l.t, dir, start(l.t, cmd))
}

// Real generators of the version before the ledger are replaced by this one: with idle tags, deleted tags and events
// that nobody read. Then the database forgets all. No ID comes twice.
func TestCompatUpgradeToTheLedger(t *testing.T) {
	old := buildBeforeLedger(t)
	l := newLedgered(t)
	dirs := map[string]string{"one": t.TempDir(), "two": t.TempDir()}
	generators := map[string]*generator{}
	for node, dir := range dirs {
		generators[node] = l.serveOld(old, dir, node, "--tag", "order:100", "--tag", "idle:100", "--tag", "gone:100", "--max-step", "500")
	}
	highest := map[string]int64{}
	for _, tag := range []string{"idle", "gone"} {
		for range 250 {
			highest[tag] = max(highest[tag], l.take(tag, 1))
		}
	}
	leafOK(t, "tag", "rm", "gone", "--yes", "-s", l.url)
	load := startLoad(t, hasty("order", bus.StoreUnavailable, bus.TimedOut, bus.Draining, bus.StoreRegressed), l.url, l.url)
	load.more(2000)

	// One is replaced while the other runs: the new one serves nothing and says why.
	generators["one"].kill()
	one := serveLacking(t, "segments", dirs["one"], "-s", l.url, "--mysql", l.dsn, "--node", "one", "--max-step", "500")
	testkit.Eventually(t, "the log to name the old generator", func() bool {
		return strings.Contains(one.stderr.String(), "the generator two is of an older version")
	})
	if n := askBuffers(t, l.nc, "order", 2)["one"].Left; n > 0 {
		t.Errorf("the new generator has %d IDs beside an old one", n)
	}
	load.more(500) // from the old one
	generators["two"].stop()
	two := serve(t, dirs["two"], "-s", l.url, "--mysql", l.dsn, "--node", "two", "--max-step", "500")
	ahead(t, load, 5000)
	for _, tag := range []string{"idle", "gone", "order"} {
		if end := l.end(tag); end <= highest[tag] {
			t.Errorf("the ledger of %s ends at %d, and %d was handed out", tag, end, highest[tag])
		}
	}

	// The database forgets, and so do the folders.
	one.stop()
	two.stop()
	for _, dir := range dirs {
		must(t, os.RemoveAll(filepath.Join(dir, "leaf-data")))
	}
	l.forget()
	one = serve(t, dirs["one"], "-s", l.url, "--mysql", l.dsn, "--node", "one", "--max-step", "500")
	serve(t, dirs["two"], "-s", l.url, "--mysql", l.dsn, "--node", "two", "--max-step", "500")
	leafOK(t, "tag", "add", "gone", "--step", "100", "-s", l.url)
	for _, tag := range []string{"idle", "gone"} {
		highest[tag] = l.take(tag, highest[tag]+1)
	}
	ahead(t, load, 5000)

	// One goes back to the older version. The other stops to reserve until that one is gone.
	one.stop()
	back := l.serveOld(old, dirs["one"], "back", "--max-step", "500")
	testkit.Eventually(t, "the new one to stop to reserve", func() bool {
		load.checkIDs()
		for _, s := range askStates(t, bus.NewClient(l.nc)) {
			if s.Node == "two" && (lacks(s, "store", "the generator back is of an older version") || lacks(s, "ledger", "the generator back is of an older version")) {
				return true
			}
		}
		return false
	})
	load.more(500)
	back.stop()
	ahead(t, load, 5000)
	load.report()
}
