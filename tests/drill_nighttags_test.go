//go:build drills

package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// A database is slow, and has to answer many requests, because the batches of a tag are larger than its step. Another tag has
// less in memory than it should.
func TestDrillNightSlow(t *testing.T) {
	l := newLedgered(t)
	way, there := newProxy(t, l.dsn)
	w := newWatch(t, l.url, threeNodes, "--mysql", there, "--tag", "batches:10", "--tag", "short:100")
	leafOK(t, "tag", "set", "short", "--max-step", "100", "-s", l.url)
	began, stop, done := time.Now(), make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		ticks := time.NewTicker(50 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
				for tag, count := range map[string]string{"batches": "500", "short": "5"} {
					_ = w.nc.PublishRequest("leaf.segment."+tag, w.nc.NewInbox(), []byte(count)) // nobody waits for the answers
				}
			}
		}
	}()
	way.Delay(400 * time.Millisecond)
	slow := w.wakes("LeafSlow", "kind", "segment").shows("leaf events --since 1h", "segment.refill", "batches", "cause=batch")
	way.Delay(0)
	slow.does("leaf tag set TAG --step N", "TAG", "batches", "N", "100000")
	slow.ends()

	time.Sleep(time.Until(began.Add(time.Hour / fast))) // the rule waits for an hour
	short := w.wakes("LeafTagLastsShort", "tag", "short").shows("leaf tag show TAG", "short", "max-step 100")
	short.does("leaf tag set TAG --max-step N", "TAG", "short", "N", "100000")
	short.does("leaf tag set TAG --step N", "TAG", "short", "N", "100000")
	short.ends()
}
