package tests

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// ZooKeeper is killed under load: segments and snowflakes go on, also those of a
// generator that was killed too and starts without it. When it is back, both
// report to it.
func TestZooKeeperIsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	server, keeper := newNATS(t), zookeeper.New(t)
	url := server.ClientURL()
	p := newPlace(t, keeper.Addr())
	one := p.joins(t, url, "one", "--tag", "order:1000")
	two := p.joins(t, url, "two")
	c := bus.NewClient(connect(t, url))
	before := workersOf(t, c, "one", "two")
	var seen workersSeen
	flakes := startLoad(t, loadConfig{callers: 1, maxBatch: 500, each: seen.add, patience: patience / 80, mayGiveUp: true}, url)
	segments := startLoad(t, loadConfig{tag: "order", callers: 1, maxBatch: 500, patience: patience / 80, mayGiveUp: true}, url)
	away, ran := false, []*generator{one, two}
	both := func(when string) {
		t.Helper()
		seen.mu.Lock()
		clear(seen.count)
		seen.mu.Unlock()
		enoughFlakes, enoughSegments := flakes.replies.Load()+50, segments.replies.Load()+50
		looked := time.Now()
		testkit.Eventually(t, "IDs of both "+when, func() bool {
			flakes.check()
			segments.check()
			if away && time.Since(looked) > 5*time.Second {
				confirmAfterStandstill(t, c, keeper, ran)
				looked = time.Now()
			}
			if flakes.replies.Load() < enoughFlakes || segments.replies.Load() < enoughSegments {
				return false
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			return seen.count[before["one"]] > 0 && seen.count[before["two"]] > 0
		})
	}
	both("before")

	must(t, keeper.Kill())
	away = true
	both("without ZooKeeper")
	two.kill()
	two = serveLacking(t, "snowflakes", two.dir, append(two.place(), p.flags()...)...)
	ran = append(ran, two)
	both("after a start without ZooKeeper")
	one.stop()
	one = serveLacking(t, "snowflakes", one.dir, append(one.place(), p.flags()...)...)
	ran = append(ran, one)
	both("after another")

	must(t, keeper.Start())
	away = false
	p.conn = newPlace(t, keeper.Addr()).conn // the old one may pause
	for _, g := range []*generator{one, two} {
		testkit.Eventually(t, g.node+" to report", func() bool {
			runs, _, ok := node[temporary](t, p, "leaf_temporary", g.node)
			if !ok || runs.PID != g.cmd.Process.Pid {
				return false
			}
			for _, name := range p.children(t, "leaf_forever") {
				if record, _, _ := node[forever](t, p, "leaf_forever", name); record.Incarnation == runs.Incarnation {
					return record.Node == g.node && record.Timestamp > record.Acquired
				}
			}
			return false
		})
	}
	both("at the end")
	if after := workersOf(t, c, "one", "two"); !maps.Equal(before, after) {
		t.Errorf("the workers were %v and are %v", before, after)
	}
	if names := p.children(t, "leaf_forever"); len(names) != 2 {
		t.Errorf("records %q", names)
	}
	flakes.stop()
	segments.stop()
}

// confirmAfterStandstill lets ZooKeeper confirm the workers, if a generator stood still on a slow machine. Such a generator issues
// nothing before, and leaves nothing with which a restart could do without ZooKeeper.
func confirmAfterStandstill(t *testing.T, c *bus.Client, keeper *zookeeper.Server, ran []*generator) {
	t.Helper()
	lacking := func() (why []string) {
		for _, s := range states(t, c, 2) {
			if slices.Contains(s.Missing, "worker") {
				why = append(why, s.Reasons["worker"])
			}
		}
		return why
	}
	texts := lacking()
	if len(texts) == 0 {
		return
	}
	for _, g := range ran {
		texts = append(texts, g.stderr.String())
	}
	if !strings.Contains(strings.Join(texts, ""), "the process stood still") {
		return
	}
	must(t, keeper.Start())
	testkit.Eventually(t, "the workers to be confirmed", func() bool { return len(lacking()) == 0 })
	must(t, keeper.Kill())
}

// ZooKeeper is away for longer than the reservation lasts: that is told before
// its end, and at the end snowflakes are refused. They are back when it is.
func TestZooKeeperIsAwayForTooLong(t *testing.T) {
	t.Parallel()
	p := newPlace(t, zookeeper.Hosts(t))
	behind, way := p.behind(t)
	server := newNATS(t)
	g := behind.joins(t, server.ClientURL(), "n", "--worker-id", "9", "--worker-reserve", "4s", "--tag", "order")
	nc := connect(t, server.ClientURL())
	js := jetStream(t, nc)
	snowflake(t, nc)

	way.Refuse(true)
	told := lastEvent[workerEvent](t, js, "leaf.events.alert.worker.expiring.9")
	if told.Node != g.node || told.Registry != "zookeeper" {
		t.Errorf("alert %+v", told)
	}
	last := int64(0)
	testkit.Eventually(t, "a refusal", func() bool {
		msg := ask(t, nc, "leaf.snowflake", "")
		if len(msg.Header) == 0 {
			ranges, err := bus.ParseReply(msg.Data)
			must(t, err)
			last = ranges[0].Last
			return false
		}
		refused(t, msg, 503, bus.NoWorkerID)
		if strings.Contains(string(msg.Data), "the process stood still") { // on a slow machine that comes before the end
			return false
		}
		if !strings.Contains(string(msg.Data), "worker 9 was reserved until") {
			t.Errorf("answered %s", msg.Data)
		}
		return true
	})
	record, _, _ := node[forever](t, p, "leaf_forever", "n-0000000000")
	if ms := partsOf(last).ms; ms >= record.ReservedUntil {
		t.Errorf("an ID has the time %d, reserved was until %d", ms, record.ReservedUntil)
	}
	takeOne(t, bus.NewClient(nc), "order")
	leaf(t, "workers", "-s", server.ClientURL()).want(t, 1, "no_worker_id", "ZooKeeper is not connected")

	way.Refuse(false)
	if id := snowflake(t, nc); id <= last || partsOf(id).worker != 9 {
		t.Errorf("%+v came after %+v", partsOf(id), partsOf(last))
	}
	if e := lastEvent[map[string]any](t, js, "leaf.events.info.worker.recovered.9"); e["episode"] != "expiring" {
		t.Errorf("event %v", e)
	}
}
