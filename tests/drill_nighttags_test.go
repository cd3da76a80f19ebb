//go:build drills

package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

// A tag comes near its limit, and reaches it. A row has the name of a strict tag.
func TestDrillNightTags(t *testing.T) {
	l := newLedgered(t)
	w := newWatch(t, l.url, threeNodes, "--mysql", l.dsn, "--max-step", "100", "--max-wait", "300ms", "--tag-refresh", "200ms")
	insertTags(t, l.dsn, 100)
	for i := range nightTags {
		filled(t, w.nc, nightTag(i), 3, "20")
	}
	tag := nightTag(11)
	limit := maxIDOf(t, l.db, tag) + 500
	leafOK(t, "tag", "set", tag, "--limit", fmt.Sprint(limit), "-s", l.url)
	testkit.Eventually(t, "a tag without IDs", func() bool {
		return strings.Contains(string(ask(t, w.nc, "leaf.segment."+tag, "20").Data), "exhausted")
	})
	ending := w.wakes("leaf.segment.ending", tag).shows("leaf tag show TAG", tag, fmt.Sprint(limit))
	exhausted := w.wakes("LeafTagExhausted").shows("leaf tag list", tag, fmt.Sprint(limit))
	w.board(w.face["gen_1"], `"kind":"leaf.segment.ending"`, tag)
	exhausted.does("leaf tag set TAG --limit N", "TAG", tag, "N", "1000000000")
	exhausted.ends()
	ending.ends()

	addStrict(t, l.url, "invoice")
	execute(t, l.db, insertTag("invoice", 5_000_000))
	shadowed := w.wakes("leaf.segment.shadowed", "invoice").shows("leaf events --alerts --since 1h", "segment.shadowed", "invoice")
	w.board(w.face["gen_1"], `"kind":"leaf.segment.shadowed"`)
	execute(t, l.db, "DELETE FROM leaf_alloc WHERE biz_tag = 'invoice'")
	shadowed.ends()
}
