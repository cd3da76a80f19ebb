//go:build drills

package tests

import (
	"errors"
	"regexp"
	"strings"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// What operators do while Leaf and generators share a table, and what the page says about it.

// operate does what the table "What Leaf does not know" of the page is about.
func (m *move) operate() {
	m.t.Helper()
	below := m.want(0, "moved")
	m.leaf("tag", "set", "moved", "--max-id", "100000")
	for range 10 {
		if id := m.want(0, "moved"); id <= below || id >= 100_000 {
			m.t.Errorf("after max_id was moved the old one gives %d, and %d before", id, below)
		}
	}
	if id := m.take("moved"); id < 100_000 {
		m.t.Errorf("after max_id was moved a generator gives %d", id)
	}
	if id := m.want(1, "moved"); id < 100_000 { // it has none in memory
		m.t.Errorf("after max_id was moved an old one without IDs gives %d", id)
	}

	m.leaf("tag", "pause", "paused")
	m.refused("paused", bus.Paused)
	m.want(0, "paused")
	m.leaf("tag", "resume", "paused")

	m.leaf("tag", "set", "limited", "--limit", "500")
	for last := int64(0); last <= 500; {
		last = m.want(0, "limited")
	}
	m.refused("limited", bus.Exhausted)

	for range 150 {
		m.quiet = max(m.quiet, m.want(0, "quiet"))
	}

	highest := m.want(0, "gone")
	m.leaf("tag", "rm", "gone", "--yes")
	m.refused("gone", bus.UnknownTag)
	for {
		id, err := m.ask(0, "gone")
		if errors.Is(err, errBothEmpty) {
			break
		}
		must(m.t, err)
		highest = max(highest, id)
	}
	m.leaf("tag", "add", "gone", "--step", "100")
	if id := m.take("gone"); id <= highest {
		m.t.Errorf("the tag was created again, and begins with %d; the old one gave %d", id, highest)
	}

	for _, kind := range []string{"--order=strict", "--opaque"} {
		m.tryLeaf("tag", "add", "order", kind).want(m.t, 1, "conflict")
		m.leaf("tag", "add", "of"+kind[2:5], kind)
		if id, err := m.ask(0, "of"+kind[2:5]); !errors.Is(err, errUnknownKey) {
			m.t.Errorf("of a tag with %s the old one gives %d, %v", kind, id, err)
		}
	}
}

// refused fails the test if the generators do not refuse the tag with this reason.
func (m *move) refused(tag string, reason bus.Reason) {
	m.t.Helper()
	_, err := client(m.t, m.nats).Take(m.t.Context(), tag, 1)
	if !errors.Is(err, reason) {
		m.t.Errorf("generators answer %s with %v, want %s", tag, err, reason)
	}
}

// restore sets the row of a tag back while both programs run: a generator refuses the tag, and the old one hands out IDs again.
func (m *move) restore() {
	m.t.Helper()
	highest := m.use("invoice", 2000)
	execute(m.t, m.db, "UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag = 'invoice'")
	r := m.tryLeaf("doctor", "--mysql-file", "leaf.dsn")
	if r.status != 1 || !regexp.MustCompile(`(?m)^problem +ledger .*invoice`).MatchString(r.stdout) {
		m.t.Errorf("leaf doctor: exit status %d: %s", r.status, r.stdout)
	}
	if id := m.want(1, "invoice"); id > highest {
		m.t.Errorf("after the restore the old one gives %d, above all %d that were in use: the page says that it gives IDs again", id, highest)
	}
	l := &ledgered{t: m.t, nc: connect(m.t, m.nats)}
	l.refusedWith("invoice", 503, bus.StoreRegressed)
	if e := lastEvent[regression](m.t, jetStream(m.t, l.nc), "leaf.events.alert.segment.regressed.invoice"); e.Action != "refused" {
		m.t.Errorf("the alert says %+v", e)
	}
	m.leaf("tag", "set", "invoice", "--max-id", "50000")
	m.leaf("doctor", "--mysql-file", "leaf.dsn")
	if id := m.take("invoice"); id < 50_000 {
		m.t.Errorf("after the repair a generator gives %d", id)
	}
}

// use takes so many IDs of the generators, and returns the highest.
func (m *move) use(tag string, ids int64) int64 {
	m.t.Helper()
	ranges, err := client(m.t, m.nats).Take(m.t.Context(), tag, ids)
	must(m.t, err)
	return ranges[len(ranges)-1].Last
}

// heal sets the row of a tag back when no old one may write to the table: generators go on above all that they claimed.
func (m *move) heal() {
	m.t.Helper()
	highest := m.use("order", 5000)
	execute(m.t, m.db, "UPDATE leaf_alloc SET max_id = 1 WHERE biz_tag IN ('order', 'quiet') OR biz_tag LIKE 'tag%'")
	if id := m.take("quiet"); id <= m.quiet {
		m.t.Errorf("after the restore a generator gives %d of a tag of which the old one gave all up to %d", id, m.quiet)
	}
	if id := m.use("order", 10_000); id <= highest {
		m.t.Errorf("after the restore a generator gives %d, and %d was in use", id, highest)
	}
	if e := lastEvent[regression](m.t, jetStream(m.t, connect(m.t, m.nats)), "leaf.events.alert.segment.regressed.order"); e.Action != "advanced" {
		m.t.Errorf("the alert says %+v", e)
	}
}

// intrude lets old ones into the table again, although no generator has --shared-table. The audit counts their IDs as lost.
func (m *move) intrude() {
	m.t.Helper()
	tag := m.tags[0]
	before := m.lost(tag)
	execute(m.t, m.db, "CREATE USER 'leaf' IDENTIFIED BY 'old'", "GRANT SELECT, INSERT, UPDATE, DELETE ON leaf.* TO 'leaf'")
	m.old[0].kill()
	m.startOld(0)
	m.startOld(1)
	old, overHTTP, _ := m.ways()
	m.traffic.lead(old, overHTTP)
	if out := m.leaf("doctor", "--mysql-file", "leaf.dsn"); !strings.Contains(out, foreign) {
		m.t.Errorf("leaf doctor does not see the old ones:\n%s", out)
	}
	testkit.Eventually(m.t, "the audit to count IDs of the old ones as lost", func() bool { m.traffic.check(); return m.lost(tag) > before })
}

// lost is how many IDs of a tag the audit counts as lost.
func (m *move) lost(tag string) int64 {
	m.t.Helper()
	return int64(runAudit(m.t, m.nats, audit.Options{Tags: []string{tag}}).Tags[0].Lost)
}
