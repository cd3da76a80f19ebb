package tests

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A tag that is deleted and made again goes on above all that was handed out, also if the database has forgotten
// that there was such a tag, and by generators that never heard of it.
func TestTagGoesOnAfterItsDeletion(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(l *ledgered){
		"nothing between":                func(*ledgered) {},
		"the database forgets":           func(l *ledgered) { l.forget() },
		"the tables are made anew":       func(l *ledgered) { execute(l.t, l.db, "DELETE FROM leaf_alloc", "DELETE FROM leaf_mark") },
		"the database remembers the tag": func(l *ledgered) { execute(l.t, l.db, "DELETE FROM leaf_mark", insertTag("order", 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedgered(t)
			one := l.join([]string{"one"}, "--tag", "order:100", "--max-step", "100")["one"]
			highest := l.take("order", 1)
			for range 3 {
				execute(t, l.db, "UPDATE leaf_alloc SET max_id = max_id + 5000") // and the ledger does not know it
				maxID := maxIDOf(t, l.db, "order")
				leafOK(t, "tag", "rm", "order", "--yes", "-s", l.url)
				if end := l.end("order"); end < maxID {
					t.Errorf("the ledger ends at %d after a deletion at %d", end, maxID)
				}
				between(l)
				one.stop()
				one = l.join([]string{"one"}, "--max-step", "100")["one"] // with an empty folder
				if r := leaf(t, "tag", "add", "order", "--step", "100", "-s", l.url); name != "the database remembers the tag" {
					r.want(t, 0)
				} else {
					r.want(t, 1, "exists")
				}
				highest = l.take("order", max(highest+1, maxID))
			}
		})
	}
}

func insertTag(tag string, maxID int64) string {
	return fmt.Sprintf("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('%s', %d, 100)", tag, maxID)
}

// SQL takes a tag away and puts it back at 1, again and again under load.
func TestTagIsMadeAnewBySQLUnderLoad(t *testing.T) {
	t.Parallel()
	l := newLedgered(t)
	l.join([]string{"one", "two"}, "--tag", "order:100", "--max-step", "100", "--tag-refresh", "100ms")
	load := startLoad(t, hasty("order", bus.UnknownTag), l.url, l.url)
	for round := range 10 {
		load.more(200)
		execute(t, l.db, "DELETE FROM leaf_alloc WHERE biz_tag = 'order'")
		if round%2 == 0 { // else it is back before anybody looks
			unknown := load.refusals(bus.UnknownTag)
			testkit.Eventually(t, "the tag to be unknown", func() bool { load.check(); return load.refusals(bus.UnknownTag) > unknown })
		}
		execute(t, l.db, insertTag("order", 1))
		highest := load.highest.Load()
		testkit.Eventually(t, "IDs that were reserved since", func() bool { load.checkIDs(); return load.highest.Load() > highest+500 })
	}
	load.report()
	load.agrees(l.url)
}

// What an operator moves max_id to is claimed: nothing below is handed out, whatever the database says later.
func TestMaxIDIsAClaim(t *testing.T) {
	t.Parallel()
	l := newLedgered(t)
	nodes := []string{"one", "two"}
	generators := l.join(nodes, "--tag", "order:100", "--max-step", "100")
	l.take("order", 1)
	leafOK(t, "tag", "set", "order", "--max-id", "1000000", "-s", l.url)
	leafOK(t, "tag", "add", "fresh", "--max-id", "7000", "-s", l.url)
	for tag, least := range map[string]int64{"order": 1_000_000, "fresh": 7000} {
		if end := l.end(tag); end < least {
			t.Errorf("the ledger of %s ends at %d", tag, end)
		}
	}
	for _, g := range generators {
		g.stop()
	}
	l.forget()
	l.join(nodes) // with empty folders
	highest := l.take("order", 1_000_000)
	l.take("fresh", 7000)
	alert := lastEvent[bus.RegressedEvent](t, l.js, "leaf.events.alert.segment.regressed.order")
	if alert.Action != "advanced" || alert.Got != 1 || alert.Seen != 1_000_000 || alert.Store != "mysql" {
		t.Errorf("alert %+v", alert)
	}

	// It cannot be moved below what is claimed, also where the database would let it.
	l.forget()
	r := leaf(t, "tag", "set", "order", "--max-id", strconv.FormatInt(highest-1, 10), "-s", l.url)
	r.want(t, 1, "conflict")
	l.take("order", highest+1)
}

// A tag that SQL inserts has no record in the ledger until its first range is claimed.
func TestTagOfSQLIsClaimed(t *testing.T) {
	t.Parallel()
	l := newLedgered(t)
	l.join([]string{"one"}, "--tag-refresh", "100ms")
	execute(t, l.db, insertTag("order", 77))
	if end := l.end("order"); end != 0 {
		t.Errorf("the ledger ends at %d before anything was asked for", end)
	}
	if id := l.take("order", 77); id != 77 {
		t.Errorf("the first ID is %d", id)
	}
	if end := l.end("order"); end < 177 {
		t.Errorf("the ledger ends at %d after 77 to 176 were reserved", end)
	}
	l.forget()
	for id := int64(77); id < 1000; {
		id = l.take("order", id+1)
	}
}
