package tests

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// auditOf audits all tags and workers, and what was taken if that is not nil.
func auditOf(t *testing.T, nc *nats.Conn, taken *audit.Runs) *audit.Report {
	t.Helper()
	c := bus.NewClient(nc)
	report, err := audit.Run(t.Context(), audit.Source{JS: jetStream(t, nc), Claims: c.Claims, Workers: c.Workers, States: c.States},
		audit.Options{TakenSnowflakes: taken})
	must(t, err)
	return report
}

// clean demands that an audit finds no contradiction.
func clean(t *testing.T, what string, r *audit.Report) {
	t.Helper()
	if len(r.Contradictions) > 0 {
		t.Errorf("%s: %+v", what, r.Contradictions)
	}
}

// contradicted waits until an audit says all of these words in one contradiction about a worker.
func contradicted(t *testing.T, nc *nats.Conn, worker int64, words ...string) {
	t.Helper()
	var r *audit.Report
	said := func() bool {
		r = auditOf(t, nc, nil)
		for _, c := range r.Contradictions {
			found := c.Kind == bus.TwoHolders && *c.Worker == worker
			for _, word := range words {
				found = found && strings.Contains(c.Message, word)
			}
			if found {
				return true
			}
		}
		return false
	}
	testkit.Eventually(t, fmt.Sprintf("a contradiction of worker %d that says %q", worker, words), said)
	for _, w := range r.Workers {
		if w.Worker.Worker == worker && len(w.Contradictions) == 0 {
			t.Errorf("it is not listed with the worker: %+v", w)
		}
	}
}

// tellAcquired publishes a forged event: node holds a worker from now on.
func tellAcquired(t *testing.T, nc *nats.Conn, node string, worker int64) {
	t.Helper()
	now := time.Now()
	msg := nats.NewMsg(fmt.Sprint("leaf.events.info.worker.acquired.", worker))
	msg.Header = nats.Header{"ce-specversion": {"1.0"}, "ce-id": {node}, "ce-type": {"leaf.worker.acquired"}, "ce-time": {now.Format(time.RFC3339Nano)}}
	msg.Data = fmt.Appendf(nil, `{"node":%q,"worker":%d,"registry":"kv","from_ms":%d,"reserved_until_ms":%d}`, node, worker, now.UnixMilli(), now.UnixMilli()+60_000)
	_, err := jetStream(t, nc).PublishMsg(t.Context(), msg)
	must(t, err)
}

// Workers are held by generators that are killed, started again, stopped, released by an operator and succeeded by others. An
// audit finds no contradiction at any moment, knows each ID that was taken, and names what is then made wrong on purpose.
func TestAuditOfWorkers(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	nc := connect(t, url)
	joins := func(node string, worker int64, more ...string) *generator {
		return serve(t, t.TempDir(), append([]string{"-s", url, "--node", node, "--worker-id", fmt.Sprint(worker)}, more...)...)
	}
	var taken audit.Runs
	holders := make(map[int64]string) // of IDs
	from := func(g *generator, worker int64) {
		t.Helper()
		testkit.Eventually(t, "an ID of "+g.node, func() bool {
			ranges := snowflakes(t, nc, "5000")
			taken.Add(ranges...)
			last := ranges[len(ranges)-1].Last
			if partsOf(last).worker != worker {
				return false
			}
			holders[last] = g.node
			return true
		})
		testkit.Eventually(t, "the event of the worker of "+g.node, func() bool { // one that waits dies with its generator
			return auditOf(t, nc, &taken).TakenSnowflakes.Unreported == 0
		})
	}
	calm := joins("calm", 0)
	gone := joins("gone", 2)
	from(gone, 2)
	gone.kill() // an operator releases its worker later
	short := []string{"--worker-reserve", "2s", "--worker-grace", "1s"}
	killed := joins("killed", 1, short...)
	from(killed, 1)
	clean(t, "all run", auditOf(t, nc, nil))
	killed.kill()
	clean(t, "killed", auditOf(t, nc, nil))
	killed = killed.again(t, short...)
	from(killed, 1)
	killed.kill()
	heir := joins("heir", 1, short...)
	from(heir, 1)
	clean(t, "succeeded", auditOf(t, nc, &taken))
	heir.stop()
	next := joins("next", 1, short...)
	from(next, 1)
	clean(t, "stopped and succeeded", auditOf(t, nc, &taken))
	testkit.Eventually(t, "the release of a worker", func() bool {
		return leaf(t, "workers", "release", "2", "--yes", "-s", url).status == 0
	})
	clean(t, "released", auditOf(t, nc, &taken))
	third := joins("third", 2)
	from(third, 2)
	gone.again(t, "--worker-id", "3")
	from(gone, 3)
	from(calm, 0)
	report := auditOf(t, nc, &taken)
	clean(t, "at the end", report)
	if got := report.TakenSnowflakes; got.IDs == 0 || got.Unclaimed != 0 || got.Unreported != 0 || got.Repeated != 0 {
		t.Errorf("%+v", got)
	}
	c := bus.NewClient(nc)
	for id, node := range holders {
		trace, err := c.Trace(t.Context(), bus.TraceRequest{Snowflake: bus.ID(id)})
		must(t, err)
		if trace.Outcome != bus.Claimed || len(trace.Claims) != 1 || trace.Claims[0].Node != node {
			t.Errorf("%+v of %s: %+v", partsOf(id), node, trace)
		}
	}

	var wrong audit.Runs
	nobodys := partsOf(snowflake(t, nc)) // with another worker
	id := report.Workers[0].ReservedUntil.Add(time.Hour).UnixMilli() - nobodys.ms
	wrong.Add(bus.Range{First: idOf(nobodys.ms, 900), Last: idOf(nobodys.ms, 900) + 1}, bus.Range{First: idOf(nobodys.ms+id, 0), Last: idOf(nobodys.ms+id, 0)})
	wrong.Add(bus.Range{First: idOf(nobodys.ms, 900), Last: idOf(nobodys.ms, 900)})
	report = auditOf(t, nc, &wrong)
	if got := *report.TakenSnowflakes; got != (audit.TakenReport{IDs: 3, Unclaimed: 3, Repeated: 1}) || len(report.Contradictions) != 3 {
		t.Errorf("%+v, %+v", got, report.Contradictions)
	}

	tellAcquired(t, nc, "ghost", 0)
	contradicted(t, nc, 0, "calm may issue", "ghost may issue", "its event is of")
	overwrite(t, jetStream(t, nc), 2, "third", "thief")
	contradicted(t, nc, 2, "third may issue", "thief may issue", "by the registry")
	next.stop()
	overwrite(t, jetStream(t, nc), 1, "next", "thief")
	contradicted(t, nc, 1, "next may issue", "thief may issue", "by the registry")

	// A clone of the memory of a generator would answer like it, with its own name or another one.
	var stats *nats.Msg
	var worker int64
	var node string
	testkit.Eventually(t, "the answer of a generator with a worker", func() bool {
		var err error
		stats, err = nc.Request("$SRV.STATS.leaf", nil, patience)
		must(t, err)
		for _, s := range states(t, c, len(report.Workers)-1) {
			if s.Worker != nil && bytes.Contains(stats.Data, fmt.Appendf(nil, `"node":"%s"`, s.Node)) {
				worker, node = *s.Worker, s.Node
				return true
			}
		}
		return false
	})
	sub, err := nc.Subscribe("$SRV.STATS.leaf", func(msg *nats.Msg) { _ = msg.Respond(stats.Data) })
	must(t, err)
	defer sub.Unsubscribe()
	contradicted(t, nc, worker, "two generators with the name "+node)
}

// idOf is the first ID of a millisecond and a worker.
func idOf(ms, worker int64) int64 { return (ms-1288834974657)<<22 | worker<<12 }

// overwrite writes another holder's name into a worker's record by hand.
func overwrite(t *testing.T, js jetstream.JetStream, worker int64, node, by string) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), bus.BucketWorkers)
	must(t, err)
	entry, err := kv.Get(t.Context(), fmt.Sprint(worker))
	must(t, err)
	text := strings.Replace(string(entry.Value()), fmt.Sprintf(`"node":%q,"incarnation":"`, node), fmt.Sprintf(`"node":%q,"incarnation":"X`, by), 1)
	if text == string(entry.Value()) {
		t.Fatalf("the record is %s", text)
	}
	_, err = kv.PutString(t.Context(), fmt.Sprint(worker), text)
	must(t, err)
}

// With ZooKeeper, a second node of one worker is named, and the holder of the first goes on.
func TestAuditOfWorkersInZooKeeper(t *testing.T) {
	t.Parallel()
	p := newPlace(t, zookeeper.Hosts(t))
	server := newNATS(t)
	one := p.joins(t, server.ClientURL(), "one", "--worker-id", "7")
	nc := connect(t, server.ClientURL())
	var taken audit.Runs
	taken.Add(snowflakes(t, nc, "10000")...)
	reportedAll := func() bool { return auditOf(t, nc, &taken).TakenSnowflakes.Unreported == 0 }
	testkit.Eventually(t, "the event of the worker", reportedAll) // one that waits dies with its generator
	one.kill()
	one.again(t, p.flags("--worker-id", "7")...)
	taken.Add(snowflakes(t, nc, "10000")...)
	testkit.Eventually(t, "the event of the worker after the restart", reportedAll)
	report := auditOf(t, nc, &taken)
	clean(t, "started again", report)
	if got := report.TakenSnowflakes; got.IDs != 20000 || got.Unreported != 0 {
		t.Errorf("%+v", got)
	}

	// The ZooKeeper of another data centre may have the record of a worker that this one does not know.
	var others audit.Runs
	others.Add(bus.Range{First: idOf(time.Now().UnixMilli(), 900), Last: idOf(time.Now().UnixMilli(), 900)})
	if report = auditOf(t, nc, &others); len(report.Contradictions) > 0 || report.TakenSnowflakes.Unreported != 1 {
		t.Errorf("%+v", report)
	}

	second := func(node string, number, ahead int64) string {
		now := time.Now().UnixMilli()
		text := fmt.Appendf(nil, `{"node":%q,"incarnation":"other","reserved_until":%d,"acquired":%d,"timestamp":%d,"base":%d}`,
			node, now+ahead, now-60_000, now, 7-number)
		name, err := p.conn.Create("/leaf/"+p.name+"/leaf_forever/"+node+"-", text, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		must(t, err)
		if !strings.HasSuffix(name, fmt.Sprintf("%010d", number)) {
			t.Fatalf("the node is %s, want number %d", name, number)
		}
		return name
	}
	// Its generator was killed before it could delete it, and never used it.
	second("left", 1, -1)
	clean(t, "a node that was left behind", auditOf(t, nc, nil))
	second("two", 2, 60_000)
	contradicted(t, nc, 7, "two records of it, of one and of two")
	reported := func() time.Time { return auditOf(t, nc, nil).Workers[0].Reported }
	before := reported()
	testkit.Eventually(t, "the holder to report", func() bool { return reported().After(before) })
}
