package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// auditSite is an installation that is audited.
type auditSite struct {
	t     *testing.T
	url   string
	dsn   string // empty: the tags are in JetStream
	nc    *nats.Conn
	js    jetstream.JetStream
	nodes map[string]*generator
}

// eachAudited runs a test for tags in MySQL and for tags in JetStream, or only for one of them, with these generators.
func eachAudited(t *testing.T, only string, nodes []string, args []string, f func(t *testing.T, a *auditSite)) {
	for _, store := range []string{"mysql", "kv"} {
		if only != "" && store != only {
			continue
		}
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			a := &auditSite{t: t, url: newNATS(t).ClientURL(), nodes: make(map[string]*generator)}
			a.nc = connect(t, a.url)
			a.js = jetStream(t, a.nc)
			args := append([]string{"-s", a.url}, args...)
			if store == "mysql" {
				a.dsn = mariadb.NewDatabase(t)
				args = append(args, "--mysql", a.dsn)
			}
			for _, node := range nodes {
				a.nodes[node] = serve(t, t.TempDir(), append(args, "--node", node)...)
			}
			f(t, a)
		})
	}
}

// audit audits these tags, or all.
func (a *auditSite) audit(taken *audit.Taken, tags ...string) *audit.Report {
	a.t.Helper()
	c := bus.NewClient(a.nc)
	source := audit.Source{JS: a.js, Claims: c.Claims, Workers: c.Workers, States: c.States}
	report, err := audit.Run(testkit.Context(a.t), source, audit.Options{Tags: tags, Taken: taken})
	must(a.t, err)
	return report
}

// finds audits until there are contradictions of the tag order, and compares them: each as kind first-last. The
// messages must have the words. The same must come over the bus.
func (a *auditSite) finds(want []string, words ...string) {
	a.t.Helper()
	overBus, err := bus.NewClient(a.nc, bus.Timeout(patience)).AuditTag(a.t.Context(), "order")
	must(a.t, err)
	for way, found := range map[string][]bus.Contradiction{
		"an audit of all":     a.audit(nil).Contradictions,
		"an audit of the tag": a.audit(nil, "order").Contradictions,
		"over the bus":        overBus.Contradictions,
	} {
		var got []string
		text := ""
		for _, c := range found {
			if c.Tag != "order" {
				a.t.Errorf("%s: %+v", way, c)
			}
			got = append(got, fmt.Sprintf("%s %d-%d", c.Kind, c.First, c.Last))
			text += c.Message + "\n"
		}
		slices.Sort(got)
		if !slices.Equal(slices.Compact(got), want) {
			a.t.Errorf("%s: %q, want %q: %s", way, got, want, text)
		}
		for _, word := range words {
			if !strings.Contains(text, word) {
				a.t.Errorf("%s does not say %q: %s", way, word, text)
			}
		}
	}
}

// record is where a tag's record is that says how far it is claimed.
func (a *auditSite) record(tag string) (bucket jetstream.KeyValue, key string) {
	a.t.Helper()
	name, key := bus.BucketTags, tag
	if a.dsn != "" {
		name, key = bus.BucketLedger, "tag."+tag
	}
	bucket, err := a.js.KeyValue(a.t.Context(), name)
	must(a.t, err)
	return bucket, key
}

// keep returns a function that puts the tag's record back as it is now.
func (a *auditSite) keep(tag string) (putBack func()) {
	a.t.Helper()
	bucket, key := a.record(tag)
	entry, err := bucket.Get(a.t.Context(), key)
	must(a.t, err)
	return func() { a.put(tag, string(entry.Value())) }
}

func (a *auditSite) put(tag, record string) {
	a.t.Helper()
	bucket, key := a.record(tag)
	_, err := bucket.PutString(a.t.Context(), key, record)
	must(a.t, err)
}

// end is how far the tag order is claimed.
func (a *auditSite) end() int64 {
	a.t.Helper()
	page, err := bus.NewClient(a.nc).Claims(a.t.Context(), bus.ClaimsRequest{Tags: []string{"order"}})
	must(a.t, err)
	return int64(page.Claims[0].End)
}

// take takes IDs of the tag order, and waits until events report all that is claimed.
func (a *auditSite) take(count int64) {
	a.t.Helper()
	_, err := bus.NewClient(a.nc).Take(a.t.Context(), "order", count)
	must(a.t, err)
	testkit.Eventually(a.t, "events of all claims", func() bool {
		found := a.audit(nil, "order").Tags[0]
		return found.Unreported == 0 && found.Reported > 0
	})
}

func (a *auditSite) event(tag, body string) {
	a.t.Helper()
	msg := nats.NewMsg("leaf.events.info.segment.refill." + tag)
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": nats.NewInbox(), "ce-source": "/leaf/x", "ce-type": "leaf.segment.refill",
		"ce-subject": tag, "ce-time": time.Now().UTC().Format(time.RFC3339Nano), "ce-datacontenttype": "application/json",
	} {
		msg.Header[name] = []string{value}
	}
	msg.Data = []byte(body)
	_, err := a.js.PublishMsg(a.t.Context(), msg)
	must(a.t, err)
}

var auditedArgs = []string{"--tag", "order:100", "--tag", "other:100", "--max-step", "100"}

// Audits run all the time beside generators under load, one of which is killed again and again, and find no contradiction. In
// the end what all callers got agrees with the claims.
func TestAuditUnderLoad(t *testing.T) {
	t.Parallel()
	eachAudited(t, "", []string{"n1", "n2", "n3"}, auditedArgs, func(t *testing.T, a *auditSite) {
		var taken audit.Taken
		cfg := hasty("order", anyRefusal...)
		cfg.callers = 1
		cfg.each = func(r bus.Range) { taken.Add("order", r) }
		l := startLoad(t, cfg, a.url, a.url)
		healthy := func() *audit.Report {
			t.Helper()
			report := a.audit(nil)
			if len(report.Contradictions) > 0 {
				t.Fatalf("contradictions on a healthy installation: %+v", report.Contradictions)
			}
			return report
		}
		for round := range 2 {
			l.more(300)
			a.nodes["n2"].kill()
			leafOK(t, "tag", "add", fmt.Sprint("fresh", round), "--max-id", "500", "-s", a.url)
			healthy()
			leafOK(t, "tag", "advance", "order", "-s", a.url)
			leafOK(t, "tag", "set", "order", "--max-id", fmt.Sprint(l.highest.Load()+100_000), "-s", a.url)
			healthy()
			args := auditedArgs
			if a.dsn != "" {
				args = append(slices.Clip(args), "--mysql", a.dsn)
			}
			a.nodes["n2"] = a.nodes["n2"].again(t, append(slices.Clip(args), "--node", "n2")...)
			leafOK(t, "tag", "rm", fmt.Sprint("fresh", round), "--yes", "-s", a.url)
			healthy()
		}
		l.report()
		var report *audit.Report
		testkit.Eventually(t, "events of the three", func() bool {
			report = healthy()
			return report.Tags[slices.IndexFunc(report.Tags, func(x bus.TagAudit) bool { return x.Tag == "order" })].Unreported == 0
		})
		of := report.Tags[slices.IndexFunc(report.Tags, func(x bus.TagAudit) bool { return x.Tag == "order" })]
		if of.Skipped == 0 || of.From != 1 || of.Reported+of.Lost+of.Skipped != int64(of.End)-1 {
			t.Errorf("the counts do not agree: %+v", of)
		}
		var refills int64
		for _, s := range of.Shares {
			refills += s.Refills
		}
		if len(of.Shares) != 3 || refills != of.Events {
			t.Errorf("shares %+v of %d events", of.Shares, of.Events)
		}
		report = a.audit(&taken)
		if len(report.Contradictions) > 0 || report.Taken.IDs != l.ids.Load() || report.Taken.Repeated+report.Taken.Unclaimed > 0 {
			t.Errorf("what was taken disagrees: %+v, %+v; callers got %d IDs", report.Taken, report.Contradictions, l.ids.Load())
		}
		t.Logf("%d events, %+v, %+v", report.Events, of, *report.Taken)
	})
}

// Each contradiction that is made on purpose is found and named, in an audit of all, of the tag, and over the bus.
func TestContradictionsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		only string // the store
		make func(a *auditSite) (want []string, words []string)
	}{
		"nothing": {"", func(*auditSite) ([]string, []string) { return nil, nil }},
		"the record is put back": {"", func(a *auditSite) ([]string, []string) {
			end := a.end()
			putBack := a.keep("order")
			a.take(100)
			now := a.end()
			putBack()
			return []string{fmt.Sprintf("unclaimed %d-%d", end, now-1)}, []string{"n1 claimed", fmt.Sprintf("end below %d", end)}
		}},
		"the record is damaged": {"", func(a *auditSite) ([]string, []string) {
			a.put("order", "garbage")
			return []string{"damaged_record 0-0"}, []string{"order", "damaged"}
		}},
		"the record is deleted": {"kv", func(a *auditSite) ([]string, []string) {
			bucket, key := a.record("order")
			must(a.t, bucket.Delete(a.t.Context(), key))
			return []string{"unclaimed 1-100"}, []string{"n1 claimed 1 to 100", "has no record"}
		}},
		"the database is set back, and healed": {"mysql", func(a *auditSite) ([]string, []string) {
			execute(a.t, openDB(a.t, a.dsn), "UPDATE leaf_alloc SET max_id = 5 WHERE biz_tag = 'order'")
			leafOK(a.t, "tag", "advance", "order", "-s", a.url)
			return nil, nil
		}},
		"the database is set back": {"mysql", func(a *auditSite) ([]string, []string) {
			execute(a.t, openDB(a.t, a.dsn), "UPDATE leaf_alloc SET max_id = 5 WHERE biz_tag = 'order'")
			return []string{"store_behind 5-100"}, []string{"max_id 5", "below 101", "leaf tag advance order"}
		}},
		"an event is forged above the end": {"", func(a *auditSite) ([]string, []string) {
			forgeRefill(a.t, a.js, "order", "forger", 101, 150)
			return []string{"unclaimed 101-150"}, []string{"forger claimed 101 to 150", "end below 101", "forged"}
		}},
		"an event is forged over others": {"", func(a *auditSite) ([]string, []string) {
			a.take(100)
			forgeRefill(a.t, a.js, "order", "forger", 40, 60)
			return []string{"overlap 40-60"}, []string{"forger claimed 40 to 60", "n1 claimed 1 to 100"}
		}},
		"the last claim has IDs of an event": {"", func(a *auditSite) ([]string, []string) {
			bucket, key := a.record("order")
			entry, err := bucket.Get(a.t.Context(), key)
			must(a.t, err)
			changed := strings.Replace(string(entry.Value()), `"node":"n1"`, `"node":"n9"`, 1)
			if changed == string(entry.Value()) {
				a.t.Fatalf("the record is %s", changed)
			}
			a.put("order", changed)
			return []string{"overlap 1-100"}, []string{"n9 claimed 1 to 100", "the tag's record", "n1 claimed 1 to 100"}
		}},
		"an event is damaged": {"", func(a *auditSite) ([]string, []string) {
			a.event("order", "garbage")
			return []string{"damaged_event 0-0"}, []string{"segment.refill.order", "garbage"}
		}},
		"the same claim around the ledger": {"mysql", func(a *auditSite) ([]string, []string) {
			store, err := schema.New(schema.Config{DSN: a.dsn})
			must(a.t, err)
			a.t.Cleanup(func() { store.Close() })
			must(a.t, store.Open(a.t.Context()))
			execute(a.t, openDB(a.t, a.dsn), "UPDATE leaf_alloc SET max_id = 51 WHERE biz_tag = 'order'")
			grant, err := store.Reserve(a.t.Context(), "order", 50, 1)
			must(a.t, err)
			forgeRefill(a.t, a.js, "order", "around", grant.First, grant.Last)
			return []string{"overlap 51-100", "unclaimed 101-150"}, []string{"around claimed 51 to 150", "n1 claimed 1 to 100"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachAudited(t, c.only, []string{"n1"}, auditedArgs, func(t *testing.T, a *auditSite) {
				a.take(1)
				want, words := c.make(a)
				a.finds(want, words...)
			})
		})
	}
}

// Rows that other programs made, tags that nobody asked for yet, and deleted tags are no contradictions.
func TestUnusualTagsAreNoContradictions(t *testing.T) {
	t.Parallel()
	eachAudited(t, "", []string{"n1"}, auditedArgs, func(t *testing.T, a *auditSite) {
		a.take(1)
		want := "order other"
		if a.dsn != "" {
			execute(t, openDB(t, a.dsn), insertTag("sql", 77), insertTag("not a tag", 5),
				"INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('step0', 9, 0)")
			want = "not a tag order other sql step0"
		}
		for _, args := range [][]string{{"add", "gone", "--max-id", "500"}, {"rm", "gone", "--yes"}, {"add", "again"}, {"rm", "again", "--yes"}, {"add", "again"}} {
			leafOK(t, append(append([]string{"tag"}, args...), "-s", a.url)...)
		}
		_, err := bus.NewClient(a.nc).Take(t.Context(), "again", 10)
		must(t, err)
		eventsOn[map[string]any](t, a.js, "leaf.events.info.tag.deleted.>", 2)
		report := a.audit(nil)
		var names []string
		for _, found := range report.Tags {
			if found.Tag != "again" && found.Tag != "gone" {
				names = append(names, found.Tag)
			}
		}
		if got := strings.Join(names, " "); got != want || len(report.Tags) != len(names)+2 || len(report.Contradictions) > 0 {
			t.Errorf("tags %q and contradictions %+v, want %q", got, report.Contradictions, want)
		}
		for _, tag := range []string{"gone", "again", "order"} {
			if report := a.audit(nil, tag); len(report.Tags) != 1 || len(report.Contradictions) > 0 {
				t.Errorf("%s: %+v", tag, report)
			}
		}
	})
}
