package tests

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// A busy tag pushes all events of a quiet tag out of the stream. Then the database is restored from before
// the quiet tag was used, and all generators begin with empty folders.
func TestQuietTagAfterRestore(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	url := newNATS(t).ClientURL()
	nc := connect(t, url)
	busyTag := strings.Repeat("busy", 32) // a long name makes long events
	args := []string{"--events-max-bytes", "1048576", "--max-step", "1"}
	generators := join(t, url, dsn, []string{"one", "two"}, append(args, "--tag", "quiet:1", "--tag", busyTag+":1")...)
	testkit.Eventually(t, "the tag", func() bool {
		var count int
		must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM leaf_alloc").Scan(&count))
		return count == 2
	})
	backUp(t, db)
	var checker allocatortest.Checker
	usedBy(t, nc, "quiet", 2, &checker)
	lastEvent[refill](t, jetStream(t, nc), "leaf.events.info.segment.refill.quiet")
	busy := startLoad(t, loadConfig{tag: busyTag, callers: 8}, url, url)
	busy.more(100)
	stream, err := jetStream(t, nc).Stream(t.Context(), bus.EventStream)
	must(t, err)
	testkit.Eventually(t, "a stream without the quiet tag's events", func() bool {
		busy.check()
		_, err := stream.GetLastMsgForSubject(t.Context(), "leaf.events.info.segment.refill.quiet")
		return errors.Is(err, jetstream.ErrMsgNotFound)
	})
	busy.stop()

	for _, g := range generators {
		g.stop()
		must(t, os.RemoveAll(g.folder))
	}
	setBack(t, db)
	for node, g := range generators {
		g.again(t, append(args, "--mysql", dsn, "--node", node)...)
	}
	usedBy(t, nc, "quiet", 2, &checker)
	_, err = checker.Check()
	must(t, err)
	noticed(t, nc, "quiet")
}
