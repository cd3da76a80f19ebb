package tests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

// The folder of an embedded server was emptied. The start is refused, and leaves nothing in JetStream that would be in the way of a restore.
// With the old folder in its place the generator goes on.
func TestRefusedStartCreatesNothing(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	granted(t, ask(t, connect(t, g.url), "leaf.segment.order", ""))
	snowflake(t, connect(t, g.url)) // the file of its worker lets it serve before it knows the installation
	g.stop()
	nats := filepath.Join(g.folder, "nats")
	must(t, os.Rename(nats, nats+".old"))
	again := []string{"serve", "--listen", testkit.FreeAddress(t), "--http", "", "--data-dir", g.folder}
	runLeaf(t, command(t, g.dir, nil, again)).want(t, 1, "no installation", "Restore its JetStream", "docs/cluster.md")
	streams, err := filepath.Glob(filepath.Join(nats, "jetstream", "*", "streams", "*"))
	must(t, err)
	if len(streams) > 0 {
		t.Errorf("the refused start made %q", streams)
	}
	must(t, os.RemoveAll(nats))
	must(t, os.Rename(nats+".old", nats))
	g = g.again(t)
	granted(t, ask(t, connect(t, g.url), "leaf.segment.order", ""))
}
