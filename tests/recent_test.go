package tests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

// A generator that starts again has a segment of each tag that was used in the
// last day, and of no other, before anybody asks.
func TestRecentTagsAreLoadedAhead(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:100", "--tag", "user:20", "--tag", "never:10")
	c := client(t, g.url)
	takeOne(t, c, "order")
	takeOne(t, c, "user")
	g.stop()

	g = g.again(t)
	nc := connect(t, g.url)
	for tag, step := range map[string]int64{"order": 100, "user": 20} {
		testkit.Eventually(t, "a segment of "+tag, func() bool {
			b, ok := askBuffers(t, nc, tag, 1)[g.node]
			return ok && b.State == "ok" && b.Left == step && len(b.Segments) == 1 && b.Taken == 0
		})
	}
	if b, ok := askBuffers(t, nc, "never", 1)[g.node]; ok {
		t.Errorf("a tag that was not used has %+v", b)
	}
	ask(t, nc, "leaf.segment.order", "50") // all of it from the segment that is there
	g.stop()

	// The file is a hint: without it all goes on.
	if err := os.WriteFile(filepath.Join(g.folder, "recent"), []byte("damaged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g = g.again(t)
	takeOne(t, client(t, g.url), "order")
}
