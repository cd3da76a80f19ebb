package tests

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// workersSeen are the workers whose IDs a load got.
type workersSeen struct {
	mu    sync.Mutex
	count map[int64]int
}

func (w *workersSeen) add(r bus.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == nil {
		w.count = make(map[int64]int)
	}
	w.count[partsOf(r.First).worker]++
}

// allEvents returns the bodies of the events that the stream has on a subject.
func allEvents[T any](t *testing.T, js jetstream.JetStream, subject string) (found []T) {
	t.Helper()
	stream, err := js.Stream(t.Context(), bus.EventStream)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for seq := uint64(1); ; {
		msg, err := stream.GetMsg(t.Context(), seq, jetstream.WithGetMsgSubject(subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return found
		case err != nil && time.Since(began) < patience: // the server may have been started again just now
			continue
		case err != nil:
			t.Fatal(err)
		}
		found = append(found, parse[T](t, msg.Data))
		seq = msg.Sequence + 1
	}
}

// One of two generators is killed at random moments, also while it starts.
// No ID repeats, and no worker changes hands: what one has reserved stays its own.
func TestKillStorm(t *testing.T) {
	t.Parallel()
	const kills = 12
	seed := allocatortest.Seed(t)
	server := newNATS(t)
	url := server.ClientURL()
	serve(t, t.TempDir(), "-s", url, "--node", "calm")
	g := serve(t, t.TempDir(), "-s", url, "--node", "stormy")
	nc := connect(t, url)
	c := bus.NewClient(nc)
	before := workersOf(t, c, "calm", "stormy")
	var seen workersSeen
	l := startLoad(t, loadConfig{
		callers: 3, maxBatch: 500, each: seen.add,
		patience: patience / 80, mayGiveUp: true, // the answer may have died with the generator
	}, url, url)
	p := g.process
	for range kills {
		l.more(10 + seed.Int64N(3000))
		p.kill()
		p = start(t, command(t, g.dir, nil, []string{"serve", "--http", "", "-s", url}))
	}
	ready(t, g.dir, p)
	if after := workersOf(t, c, "calm", "stormy"); !maps.Equal(before, after) {
		t.Errorf("the workers were %v and are %v", before, after)
	}
	seen.mu.Lock()
	clear(seen.count)
	seen.mu.Unlock()
	testkit.Eventually(t, "IDs of both", func() bool {
		l.more(100)
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return len(seen.count) == 2
	})
	l.stop()
	clean(t, "after the kills", auditOf(t, nc, nil))
	owners := make(map[int64]string)
	for _, e := range allEvents[workerEvent](t, jetStream(t, nc), "leaf.events.info.worker.acquired.*") {
		if owner := owners[e.Worker]; owner != "" && owner != e.Node {
			t.Errorf("worker %d was taken by %s and %s", e.Worker, owner, e.Node)
		}
		owners[e.Worker] = e.Node
	}
	for worker := range seen.count {
		if owners[worker] == "" {
			t.Errorf("IDs of worker %d came, which nobody took: %v", worker, owners)
		}
	}
}

// A generator stands still for longer than its reservation while another takes
// its worker. Requests have piled up with it when it goes on: it answers none of
// them with an ID of that worker that is not of its own time.
func TestStoppedForLongerThanTheReservation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		two  bool
	}{
		"one worker":  {[]string{"--worker-id", "7"}, false},
		"two workers": {[]string{"--worker-range", "7-8"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const burst = 1000
			server := newNATS(t)
			nc := connect(t, server.ClientURL())
			js := jetStream(t, nc)
			args := []string{"-s", server.ClientURL(), "--worker-reserve", "2s", "--node"}
			first := serve(t, t.TempDir(), append(append(args, "first"), c.args...)...)
			last := snowflakes(t, nc, "20000")
			taken := partsOf(last[0].First).worker
			next := int64(-1) // none
			if c.two {
				next = 7 + 8 - taken
			}
			var checker allocatortest.Checker
			checker.Add(last...)

			first.freeze()
			early := request(t, nc, burst) // nobody else is there to get them
			end := workerRecord(t, js, taken).ReservedUntilMS
			second := serveLacking(t, "snowflakes", t.TempDir(), append(args, "second", "--worker-id", fmt.Sprint(taken))...)
			// The first still is in the queue group: it gets a part of these.
			var late []*nats.Subscription
			ofSecond := 0
			testkit.Eventually(t, "IDs of the second", func() bool {
				sub := request(t, nc, 20)
				late = append(late, sub)
				for {
					msg, err := sub.NextMsg(20 * time.Millisecond)
					if err != nil {
						return ofSecond >= 200
					}
					if len(msg.Header) > 0 { // it waits for the end of the reservation
						refused(t, msg, 503, bus.NoWorkerID)
						continue
					}
					ranges, err := bus.ParseReply(msg.Data)
					if err != nil {
						t.Fatal(err)
					}
					checker.Add(ranges...)
					if p := partsOf(ranges[0].First); p.worker != taken || p.ms < end {
						t.Fatalf("the second issued %+v; it was reserved for the first until %d", p, end)
					}
					ofSecond++
				}
			})
			first.signal(syscall.SIGCONT)

			if e := lastEvent[workerEvent](t, js, fmt.Sprint("leaf.events.alert.worker.lost.", taken)); e.Node != "first" || e.Worker != taken {
				t.Errorf("alert %+v", e)
			}
			holding := map[int64]string{taken: "second"}
			if c.two {
				holding[next] = "first"
			}
			testkit.Eventually(t, fmt.Sprint("the workers ", holding), func() bool { return maps.Equal(holders(t, bus.NewClient(nc)), holding) })

			// It does not answer those that are too old, or that were lost with its connection.
			served := 0
			for _, sub := range append(late, early) {
				for msg, err := sub.NextMsg(100 * time.Millisecond); err == nil; msg, err = sub.NextMsg(time.Millisecond) {
					// Of what it lacks, it takes IDs from the second one.
					served += take(t, &checker, msg, func(p parts) bool { return p.worker == next || p.worker == taken && (p.ms >= end || sub == early) })
				}
			}
			t.Logf("%d requests that the stopped one had got IDs", served)
			for range 100 {
				id := snowflake(t, nc)
				checker.Add(bus.Range{First: id, Last: id})
			}
			if _, err := checker.Check(); err != nil {
				t.Error(err)
			}
			clean(t, "at the end", auditOf(t, nc, nil))
			second.stop()
		})
	}
}

// request sends so many requests for three IDs each, and returns where their
// answers come.
func request(t *testing.T, nc *nats.Conn, count int) *nats.Subscription {
	t.Helper()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for range count {
		if err := nc.PublishRequest("leaf.snowflake", inbox, []byte("3")); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return sub
}

// take takes in an answer that has IDs which may be there, or says that there is
// no worker. It returns 1 if there are IDs.
func take(t *testing.T, checker *allocatortest.Checker, msg *nats.Msg, may func(parts) bool) int {
	t.Helper()
	if len(msg.Header) > 0 {
		refused(t, msg, 503, bus.NoWorkerID)
		return 0
	}
	ranges, err := bus.ParseReply(msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	checker.Add(ranges...)
	for _, r := range ranges {
		if p := partsOf(r.First); !may(p) {
			t.Errorf("answered with %+v", p)
		}
	}
	return 1
}

// The bucket of the workers is deleted under load, and later restored from an
// older copy. Each generator notices that its record is gone, alerts, and serves
// on with a worker that is its own.
func TestRegistryWipedAndRestored(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	nodes := []string{"one", "two", "three"}
	generators := make(map[string]*generator)
	// Few workers: one that another still uses would soon be taken.
	args := []string{"--worker-range", "0-3", "--worker-reserve", "6s"}
	for _, node := range nodes {
		generators[node] = serve(t, t.TempDir(), append(args, "-s", url, "--node", node)...)
	}
	nc := connect(t, url)
	js := jetStream(t, nc)
	c := bus.NewClient(nc)
	var seen workersSeen
	l := startLoad(t, loadConfig{callers: 3, maxBatch: 500, each: seen.add, patience: patience / 80, mayGiveUp: true}, url, url)
	l.more(300)
	// The copy knows of two generators as they are, and of the third's last run.
	server.Close()
	backup := filepath.Join(t.TempDir(), "backup")
	copyFolder(t, server.folderOf(bus.BucketWorkers), backup)
	server.start()
	generators["three"].kill()
	generators["three"] = generators["three"].again(t, args...)
	workersOf(t, c, nodes...)
	l.more(300)

	lost := func() map[string]int {
		found := make(map[string]int)
		for _, e := range allEvents[workerEvent](t, js, "leaf.events.alert.worker.lost.*") {
			found[e.Node]++
		}
		return found
	}
	serving := func(what string) {
		t.Helper()
		testkit.Eventually(t, "all to serve after the registry was "+what, func() bool {
			l.check()
			if len(holders(t, c)) != len(nodes) {
				return false
			}
			seen.mu.Lock()
			clear(seen.count)
			seen.mu.Unlock()
			l.more(300)
			seen.mu.Lock()
			defer seen.mu.Unlock()
			return slices.Equal(slices.Sorted(maps.Keys(seen.count)), slices.Sorted(maps.Keys(holders(t, c))))
		})
	}
	testkit.Eventually(t, "the deletion of the bucket", func() bool { // its answer may come too late
		err := js.DeleteKeyValue(t.Context(), bus.BucketWorkers)
		return err == nil || errors.Is(err, jetstream.ErrBucketNotFound)
	})
	testkit.Eventually(t, "an alert of each", func() bool { n := lost(); return n["one"] == 1 && n["two"] == 1 && n["three"] == 1 })
	serving("wiped")

	server.Close()
	copyFolder(t, backup, server.folderOf(bus.BucketWorkers))
	server.start()
	testkit.Eventually(t, "an alert", func() bool { n := lost(); return n["one"]+n["two"]+n["three"] > len(nodes) })
	serving("restored")
	l.stop()
	clean(t, "after the restore", auditOf(t, nc, nil)) // each has noticed it, before another took its worker
	// By chance the copy may have a record that one of them can extend.
	for node, n := range lost() {
		if n > 2 {
			t.Errorf("%s alerted %d times of two losses", node, n)
		}
	}
	for _, g := range generators {
		g.stop()
	}
}
