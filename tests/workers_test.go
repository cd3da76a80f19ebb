package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// record is a worker's record in the bucket LEAF_WORKERS.
type record struct {
	Node            string `json:"node"`
	ReservedUntilMS int64  `json:"reserved_until_ms"`
}

func workerRecord(t *testing.T, js jetstream.JetStream, worker int64) (r record) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), "LEAF_WORKERS")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), fmt.Sprint(worker))
	if err != nil {
		t.Fatalf("the record of worker %d: %v", worker, err)
	}
	if err := json.Unmarshal(entry.Value(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// holders returns the nodes that run and hold a worker, by worker.
func holders(t *testing.T, c *bus.Client) map[int64]string {
	t.Helper()
	found := make(map[int64]string)
	page, err := c.Workers(t.Context(), bus.WorkersRequest{})
	if err != nil {
		t.Logf("the workers cannot be listed: %v", err) // the registry may be away
	}
	for _, w := range page.Workers {
		if w.Running {
			found[w.Worker] = w.Node
		}
	}
	return found
}

// workersOf waits until all nodes hold a worker each, and returns them by node.
func workersOf(t *testing.T, c *bus.Client, nodes ...string) map[string]int64 {
	t.Helper()
	var found map[string]int64
	testkit.Eventually(t, fmt.Sprintf("%q to hold a worker each", nodes), func() bool {
		found = make(map[string]int64)
		for worker, node := range holders(t, c) {
			found[node] = worker
		}
		return !slices.ContainsFunc(nodes, func(node string) bool { _, ok := found[node]; return !ok })
	})
	return found
}

// Generators that start at once get a worker each, also when there are only as
// many workers as generators.
func TestManyStartAtOnce(t *testing.T) {
	t.Parallel()
	const count = 8
	server := newNATS(t)
	var nodes []string
	var starting []*process
	dir := t.TempDir()
	for i := range count {
		node := fmt.Sprint("n", i)
		nodes = append(nodes, node)
		starting = append(starting, start(t, command(t, dir, nil, []string{"serve", "--http", "", "-s", server.ClientURL(),
			"--data-dir", node, "--node", node, "--worker-range", fmt.Sprintf("0-%d", count-1)})))
	}
	for _, p := range starting {
		ready(t, dir, p)
	}
	nc := connect(t, server.ClientURL())
	workers := workersOf(t, bus.NewClient(nc), nodes...)
	if len(workers) != count {
		t.Errorf("workers %v", workers)
	}
	seen := make(map[int64]bool)
	l := startLoad(t, loadConfig{callers: 1, maxBatch: 500, each: func(r bus.Range) { seen[partsOf(r.First).worker] = true }}, server.ClientURL())
	l.more(500)
	l.stop()
	if len(seen) != count {
		t.Errorf("IDs of the workers %v came, want %d workers", seen, count)
	}
}

// A generator for which no worker is left leaves the requests to the others and
// says who holds them until when. When one stops, its worker is taken over.
func TestOneMoreThanThereAreWorkers(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	args := []string{"-s", server.ClientURL(), "--worker-range", "0-1", "--worker-grace", "1s", "--node"}
	one := serve(t, t.TempDir(), append(args, "one")...)
	serve(t, t.TempDir(), append(args, "two")...)
	three := serveLacking(t, "snowflakes", t.TempDir(), append(args, "three")...)
	nc := connect(t, server.ClientURL())
	c := bus.NewClient(nc)
	workers := workersOf(t, c, "one", "two")
	if len(workers) != 2 || workers["one"]+workers["two"] != 1 {
		t.Fatalf("the workers are %v, want 0 and 1", workers)
	}

	testkit.Eventually(t, "the third to step aside", func() bool { return len(answers(t, nc, "$SRV.PING.leaf-snowflake")) == 2 })
	seen := make(map[int64]int)
	for range 200 {
		seen[partsOf(snowflakes(t, nc, "")[0].First).worker]++
	}
	if len(seen) != 2 {
		t.Errorf("IDs came from workers %v", seen)
	}
	if n := len(answers(t, nc, "$SRV.PING.leaf")); n != 3 {
		t.Errorf("%d generators answer for the rest, want 3", n)
	}
	// Those that hold a worker tell their clocks, and no other.
	before := time.Now().UnixMilli()
	for _, body := range askAll[json.RawMessage](t, nc, "leaf.clock", 2) {
		clock := parse[struct {
			Node   string `json:"node"`
			Worker int64  `json:"worker"`
			UnixMS int64  `json:"unix_ms"`
		}](t, body)
		if worker, ok := workers[clock.Node]; !ok || clock.Worker != worker || clock.UnixMS < before || clock.UnixMS > time.Now().UnixMilli() {
			t.Errorf("leaf.clock is answered with %s after %d", body, before)
		}
	}
	held := fmt.Sprintf("%d by one until 2", workers["one"])
	s := states(t, c, 3)[1] // by name: one, three, two
	if s.Node != "three" || s.Ready || s.Worker != nil || !slices.Equal(s.Missing, []string{"worker"}) || !strings.Contains(s.Reasons["worker"], held) {
		t.Errorf("its state is %+v", s)
	}
	nodes := leaf(t, "nodes", "-s", server.ClientURL())
	nodes.want(t, 0, "three: worker: ", held)
	if !strings.Contains(nodes.stdout, "missing: worker") {
		t.Errorf("leaf nodes:\n%s", nodes.stdout)
	}
	if log := three.stderr.String(); !strings.Contains(log, held) {
		t.Errorf("its log does not say %q", held)
	}

	one.stop()
	end := workerRecord(t, jetStream(t, nc), workers["one"]).ReservedUntilMS
	if now := workersOf(t, c, "two", "three"); now["three"] != workers["one"] {
		t.Errorf("the workers are now %v", now)
	}
	testkit.Eventually(t, "an ID of the third", func() bool {
		p := partsOf(snowflake(t, nc))
		if p.worker == workers["one"] && p.ms < end {
			t.Fatalf("%+v was issued before the end of the former holder, %d", p, end)
		}
		return p.worker == workers["one"]
	})
	testkit.Eventually(t, "the third to come back", func() bool { return len(answers(t, nc, "$SRV.PING.leaf-snowflake")) == 2 })
}

// Alone, a generator whose worker is taken stays and says why it has no IDs.
// What needs no worker it serves.
func TestTakenWorkerAlone(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	first := serve(t, t.TempDir(), "-s", server.ClientURL(), "--tag", "order", "--worker-id", "7", "--node", "first")
	nc := connect(t, server.ClientURL())
	id := snowflake(t, nc)
	first.kill()
	end := time.UnixMilli(workerRecord(t, jetStream(t, nc), 7).ReservedUntilMS).UTC()
	serveLacking(t, "snowflakes", t.TempDir(), "-s", server.ClientURL(), "--worker-id", "7", "--node", "second")
	for range 20 {
		msg := ask(t, nc, "leaf.snowflake", "")
		refused(t, msg, 503, bus.NoWorkerID)
		if want := "7 by first until " + end.Format("2006-01-02T15:04:05"); !strings.Contains(string(msg.Data), want) {
			t.Fatalf("answered %s, want it to say %q", msg.Data, want)
		}
	}
	refused(t, ask(t, nc, "leaf.snowflake", "0"), 400, bus.BadRequest)
	leaf(t, "snowflake", "-s", server.ClientURL(), "--timeout", "300ms").want(t, 1, "no_worker_id", "7 by first until")
	granted(t, ask(t, nc, "leaf.segment.order", ""))
	granted(t, ask(t, nc, "leaf.decode", fmt.Sprint(id)))
	if found := answers(t, nc, "leaf.clock"); len(found) != 0 {
		t.Errorf("it tells its clock without a worker: %s", found[0].Data)
	}
	testkit.Eventually(t, "the first to be known as gone", func() bool { return len(holders(t, bus.NewClient(nc))) == 0 })
}

// A worker whose holder was killed is taken over when its reservation ends, and
// not before: no ID of the successor has an earlier time.
func TestWorkerOfTheDead(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	args := []string{"-s", server.ClientURL(), "--worker-id", "8", "--worker-reserve", "2s", "--node"}
	first := serve(t, t.TempDir(), append(args, "first")...)
	l := startLoad(t, loadConfig{callers: 2, maxBatch: 500, patience: patience / 80, mayGiveUp: true,
		expected: []bus.Reason{bus.NoWorkerID}}, server.ClientURL())
	l.more(200)
	first.kill()
	highest := l.highest.Load()
	nc := connect(t, server.ClientURL())
	end := workerRecord(t, jetStream(t, nc), 8).ReservedUntilMS
	if highest := partsOf(highest); highest.ms >= end {
		t.Errorf("%+v was issued, reserved was until %d", highest, end)
	}
	serve(t, t.TempDir(), append(args, "second")...)
	if p := partsOf(snowflake(t, nc)); p.ms < end || p.worker != 8 {
		t.Errorf("the successor issued %+v, want from %d on", p, end)
	}
	l.more(200)
	l.stop()
}

// ceiling returns the time that the file of the worker says is above all that was
// issued.
func ceiling(t *testing.T, g *generator) (highest int64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.folder, "worker"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"ceiling_ms":(\d+)`).FindAllSubmatch(text, -1) {
		ms, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		highest = max(highest, ms)
	}
	return highest
}

// A generator that comes back after it was stopped or killed has its worker again
// long before its reservation ends, and never repeats an ID. How soon, the tests of
// the package snowflake know, where no machine is slow.
func TestRestartKeepsTheWorker(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	g := serve(t, t.TempDir(), "-s", server.ClientURL())
	other := serve(t, t.TempDir(), "-s", server.ClientURL(), "--worker-reserve", "1s", "--worker-grace", "1s")
	nc := connect(t, server.ClientURL())
	other.stop() // its worker is free soon, and tempting
	snowflakes(t, nc, "100000")
	last := snowflake(t, nc)
	worker := partsOf(last).worker
	for _, c := range []struct {
		how    string
		end    func(*process)
		rounds int
	}{
		{"stop", (*process).stop, 3},
		{"kill", (*process).kill, 2},
	} {
		best := time.Hour
		for range c.rounds {
			c.end(g.process)
			floor := ceiling(t, g)
			if p := partsOf(last); p.ms >= floor {
				t.Fatalf("%s: %+v was issued above the ceiling %d", c.how, p, floor)
			}
			reserved := workerRecord(t, jetStream(t, nc), worker).ReservedUntilMS
			begin := time.Now()
			g = g.again(t)
			id := snowflake(t, nc)
			best = min(best, time.Since(begin))
			if p := partsOf(id); id <= last || p.worker != worker || p.ms < floor || p.ms >= reserved {
				t.Fatalf("%s: %+v came after %+v; the ceiling was %d, reserved was until %d", c.how, p, partsOf(last), floor, reserved)
			}
			ranges := snowflakes(t, nc, "10000")
			last = ranges[len(ranges)-1].Last
		}
		t.Logf("%s: back after %v", c.how, best)
	}
}

// A generator whose reservation lasts serves snowflakes after a restart before
// it can ask the registry: here it may not.
func TestRestartWithoutTheRegistry(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, file, `authorization { users: [
		{user: full, password: secret},
		{user: poor, password: secret, permissions: {publish: {deny: ["$JS.>", "$KV.>"]}}},
	] }`)
	server := newNATSFrom(t, file)
	g := serve(t, t.TempDir(), "-s", server.ClientURL(), "--user", "full", "--password", "secret")
	nc := connect(t, server.ClientURL(), nats.UserInfo("full", "secret"))
	last := snowflake(t, nc)
	worker := partsOf(last).worker
	for _, end := range []func(*process){(*process).stop, (*process).kill} {
		end(g.process)
		g = serveLacking(t, "segments", g.dir, "-s", g.url, "--user", "poor", "--password", "secret")
		id := snowflake(t, nc)
		if id <= last || partsOf(id).worker != worker {
			t.Errorf("%+v came after %+v", partsOf(id), partsOf(last))
		}
		ranges := snowflakes(t, nc, "10000")
		last = ranges[len(ranges)-1].Last
	}
}

// A bucket that could lose records by itself ends the start, with a sentence.
func TestWorkersThatExpire(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	nc := connect(t, server.ClientURL())
	if _, err := jetStream(t, nc).CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "LEAF_WORKERS", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := start(t, command(t, dir, nil, []string{"serve", "--http", "", "-s", server.ClientURL()}))
	result{p.wait(patience), "", p.stderr.String()}.want(t, 1, "bucket LEAF_WORKERS has an age limit (1h0m0s)")

	// An operator makes it right, and starts the generator again.
	if err := jetStream(t, nc).DeleteKeyValue(t.Context(), "LEAF_WORKERS"); err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Fatal(err)
	}
	serve(t, dir, "-s", server.ClientURL())
	snowflake(t, nc)
}
