package tests

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// Busy tags push all events of a quiet tag out of the stream. Then the database is restored from before
// the quiet tag was used, and all generators begin with empty folders.
func TestQuietTagAfterRestore(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	url := newNATS(t).ClientURL()
	nc := connect(t, url)
	args := []string{"--events-max-bytes", "1048576", "--max-step", "1"}
	tags := []string{"--tag", "quiet:1"}
	busyTags := make([]string, 6) // each fills at most a fifth of the stream
	for i := range busyTags {
		busyTags[i] = strings.Repeat("busy", 31) + fmt.Sprintf("%04d", i) // a long name makes long events
		tags = append(tags, "--tag", busyTags[i]+":1")
	}
	generators := join(t, url, dsn, []string{"one", "two"}, append(args, tags...)...)
	testkit.Eventually(t, "the tag", func() bool {
		var count int
		must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM leaf_alloc").Scan(&count))
		return count == 1+len(busyTags)
	})
	backUp(t, db)
	var checker allocatortest.Checker
	usedBy(t, nc, "quiet", 2, &checker)
	lastEvent[refill](t, jetStream(t, nc), "leaf.events.info.segment.refill.quiet")
	var busy []*load
	for _, tag := range busyTags {
		busy = append(busy, startLoad(t, loadConfig{tag: tag, callers: 2}, url, url))
	}
	stream, err := jetStream(t, nc).Stream(t.Context(), bus.EventStream)
	must(t, err)
	testkit.Eventually(t, "a stream without the quiet tag's events", func() bool {
		for _, l := range busy {
			l.check()
		}
		_, err := stream.GetLastMsgForSubject(t.Context(), "leaf.events.info.segment.refill.quiet")
		return errors.Is(err, jetstream.ErrMsgNotFound)
	})
	for _, l := range busy {
		l.stop()
	}

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
	var taken audit.Taken
	taken.Add("quiet", checker.Ranges()...)
	auditAgrees(t, url, audit.Options{Taken: &taken}, bus.StoreBehind) // nobody asked for the busy tags since
	noticed(t, nc, "quiet")
}
