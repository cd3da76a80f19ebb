package faults

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// processes are what happens to generators themselves.
var processes = []scenario{
	{
		fault: "generators are killed, and come back", in: []setup{embedded, kv, inMySQL}, fails: once,
		strike: func(in *installation) {
			before := in.held(len(in.nodes))
			for range 3 {
				in.more(50 + in.random.Int64N(300))
				i := in.random.IntN(len(in.nodes))
				in.kill(i)
				if highest := in.highest(); in.embedded {
					in.again(i)
					in.above(order, highest+1)
				} else {
					in.more(100) // of the others
					in.again(i)
				}
			}
			if after := in.held(len(in.nodes)); !maps.Equal(before, after) {
				in.Errorf("the workers were %v and are %v", before, after)
			}
		},
	},
	{
		fault: "a generator is killed while it starts", in: []setup{kv}, fails: once,
		strike: func(in *installation) {
			before := in.held(3)
			for range 4 {
				in.more(50)
				in.kill(2)
				p := kit.Start(in.T, kit.Command(in.T, in.nodes[2].Dir, nil, append([]string{"serve"}, in.nodes[2].Arguments()...)...))
				pause(in, 300*time.Millisecond)
				kit.Must(in.T, p.Kill())
				in.again(2)
			}
			if after := in.held(3); !maps.Equal(before, after) {
				in.Errorf("the workers were %v and are %v", before, after)
			}
		},
	},
	{
		fault: "a generator is frozen, and thaws", in: []setup{kv, inMySQL}, fails: callers.AnyFailure,
		strike: func(in *installation) {
			in.freeze(1)
			in.more(300) // from the others
			in.thaw(1)
			in.held(3)
		},
	},
	{
		// A claim of a tag in MySQL has two parts. Each request of this tag needs one.
		fault: "generators die and freeze amid claims, and the database is set back", in: []setup{inMySQL},
		flags: []string{"--tag", "tiny:1"}, tags: []string{"tiny", snowflakes}, fails: callers.AnyFailure,
		strike: func(in *installation) {
			in.backUp()
			for round := range 20 {
				in.callers.More(1 + in.random.Int64N(60))
				i := in.random.IntN(3)
				pause(in, 3*time.Millisecond)
				if round%4 == 3 {
					in.setBack()
				}
				if round%10 == 9 {
					in.kill(i)
					in.again(i)
				} else {
					in.freeze(i)
					pause(in, 50*time.Millisecond)
					in.thaw(i)
				}
				in.callers.Check()
			}
			in.ahead(500)
		},
	},
	{
		fault: "generators are restarted one by one", in: []setup{kv, inMySQL}, fails: overHTTP,
		strike: func(in *installation) {
			in.each(in.stop, func(i int) { in.again(i) }, func(int) { in.more(100) })
		},
	},
	{
		// The NATS server does not notice the standstill, so it keeps the requests of that time.
		fault: "requests of a standstill", in: []setup{kvPatient}, tags: none,
		strike: func(in *installation) {
			before := in.take(order)
			in.take(snowflakes)
			inbox, late := in.inbox()
			in.freeze(0)
			for begin := time.Now(); time.Since(begin) < 6*time.Second; pause(in, 200*time.Millisecond) {
				for _, subject := range []string{bus.SubjectSegment + "." + order, bus.SubjectSnowflake} {
					kit.Must(in.T, in.nc.PublishRequest(subject, inbox, []byte("10")))
				}
			}
			in.thaw(0)
			in.take(snowflakes)
			if id := in.take(order); id > before+10 { // answers to a few further tries may have come too late
				in.Errorf("ID %d came after %d: requests whose callers had given up used up IDs", id, before)
			}
			if n, _, err := late.Pending(); n > 0 || err != nil {
				in.Errorf("%d requests of the standstill were answered: %v", n, err)
			}
		},
	},
	{
		fault: "SIGTERM with thousands of requests in the queues", in: []setup{kvAlone}, tags: none,
		flags: []string{"--tag", "long:100000", "--max-step", "100000"},
		strike: func(in *installation) {
			const each = 2000
			all := []string{"long", "long", order, invoice, coupon}
			for _, tag := range all {
				in.take(tag)
			}
			inbox, answers := in.inbox()
			in.freeze(0) // for less than the 5 s after which a generator drops requests
			for range each {
				for _, tag := range all {
					kit.Must(in.T, in.nc.PublishRequest(bus.SubjectSegment+"."+tag, inbox, []byte("3")))
				}
			}
			kit.Must(in.T, in.nc.Flush())
			kit.Must(in.T, in.nodes[0].Signal(syscall.SIGTERM))
			in.thaw(0)
			for range each * len(all) {
				if err := answer(in, answers); err != nil && !is(err, bus.Draining) {
					in.Fatal(err)
				}
			}
			kit.Finish(in.T, in.nodes[0].Process).Want(in.T, 0)
			if stopped := in.events("info.node.stopped.n0"); len(stopped) != 1 {
				in.Errorf("events %+v", stopped)
			}
		},
	},
	{
		fault: "SIGTERM while requests wait for the store", in: []setup{embedded}, tags: none,
		flags: []string{"--max-wait", "1m", "--drain-timeout", "1m"},
		strike: func(in *installation) {
			answers := in.waiting(20)
			kit.Must(in.T, in.nodes[0].Signal(syscall.SIGTERM))
			in.refused(idle, 1, bus.Draining, "")
			in.refuseWrites(bus.BucketTags, false)
			for range 20 {
				kit.Must(in.T, answer(in, answers))
			}
			kit.Finish(in.T, in.nodes[0].Process).Want(in.T, 0)
		},
	},
	{
		fault: "the time for a stop is over while requests wait", in: []setup{embedded}, tags: none,
		flags: []string{"--max-wait", "1m", "--drain-timeout", "200ms"},
		strike: func(in *installation) {
			answers := in.waiting(20)
			kit.Must(in.T, in.nodes[0].Signal(os.Interrupt))
			for range 20 {
				if err := answer(in, answers); !is(err, bus.Draining) {
					in.Errorf("answered %v, want that it is draining", err)
				}
			}
			kit.Finish(in.T, in.nodes[0].Process).Want(in.T, 0)
		},
	},
	{
		fault: "a second signal", in: []setup{embedded}, tags: none,
		flags: []string{"--max-wait", "1m", "--drain-timeout", "10m"},
		strike: func(in *installation) {
			in.waiting(1)
			kit.Must(in.T, in.nodes[0].Signal(syscall.SIGTERM))
			in.refused(idle, 1, bus.Draining, "")
			kit.Must(in.T, in.nodes[0].Signal(syscall.SIGTERM))
			kit.Finish(in.T, in.nodes[0].Process).Want(in.T, 1)
		},
	},
	{
		fault: "a generator is lost, and comes back", in: []setup{kv}, fails: once,
		strike: func(in *installation) {
			in.stop(1) // this one said goodbye
			in.kill(2)
			e := in.alerted("node.lost.n2")
			if e.Node != "n2" || e.Worker == nil {
				in.Errorf("alert %+v", e)
			}
			in.again(1) // it did not hear n2 itself
			testkit.Eventually(in.T, "operators see the loss", func() bool {
				_, metrics := in.get(1, "/metrics")
				return strings.Contains(in.leaf("nodes"), "lost, last heard") && strings.Contains(metrics, "\nleaf_lost_nodes 1\n")
			})
			in.again(2)
			in.alertEnds("node.lost.n2")
			if found := in.events("alert.node.lost.*"); len(found) != 1 {
				in.Errorf("several generators alerted, or the stopped one counts as lost: %+v", found)
			}
		},
	},
	{
		fault: "a copy of a data folder runs beside the original", in: []setup{kv},
		strike: func(in *installation) {
			dir := in.TempDir()
			copyFolder(in.T, in.nodes[0].Data, filepath.Join(dir, "leaf-data"))
			twin := kit.Serve(in.T, dir, "-s", in.url)
			if twin.Node == "n0" || !strings.Contains(twin.Stderr(), "copied") {
				in.Errorf("the copy calls itself %s, and its log says %s", twin.Node, twin.Stderr())
			}
			in.held(4)
			in.more(200)
		},
	},
	{
		fault: "the file of the worker is damaged", in: []setup{embedded}, tags: none,
		strike: func(in *installation) {
			damages := []func(file []byte) []byte{
				func([]byte) []byte { return nil },
				func(file []byte) []byte { return make([]byte, len(file)) },
				func(file []byte) []byte { clear(file[100:4096]); clear(file[4196:]); return file },
				func(file []byte) []byte { clear(file[100:4096]); return file }, // from here on one slot is whole
				func(file []byte) []byte { return file[:4196] },
			}
			for i, damage := range damages {
				before, worker := snowflake(in.take(snowflakes))
				in.kill(0)
				path := filepath.Join(in.nodes[0].Data, "worker")
				file, err := os.ReadFile(path)
				kit.Must(in.T, err)
				kit.Must(in.T, os.WriteFile(path, damage(file), 0o600))
				in.again(0)
				if after, now := snowflake(in.take(snowflakes)); after <= before || (now == worker) != (i >= 3) {
					in.Errorf("damage %d: worker %d at %d came after worker %d at %d", i, now, after, worker, before)
				}
			}
		},
	},
	{
		fault: "another process writes to the file of the worker", in: []setup{embedded}, tags: none,
		strike: func(in *installation) {
			in.take(snowflakes)
			path := filepath.Join(in.nodes[0].Data, "worker")
			old, err := os.ReadFile(path)
			kit.Must(in.T, err)
			testkit.Eventually(in.T, "the end", func() bool { // it may have written just now
				kit.Must(in.T, os.WriteFile(path, old, 0o600))
				return in.nodes[0].Ended()
			})
			kit.Finish(in.T, in.nodes[0].Process).Want(in.T, 1, "another process has used this data folder")
		},
	},
	{
		// The tags of the last day are loaded ahead. Not a fault, but it belongs to a restart.
		fault: "a restart after a day's work", in: []setup{embedded}, tags: none,
		strike: func(in *installation) {
			in.take(order)
			in.stop(0)
			in.again(0)
			loaded := func() (body string) {
				_, body = in.get(0, "/metrics")
				return body
			}
			testkit.Eventually(in.T, "a segment that nobody asked for", func() bool {
				return strings.Contains(loaded(), `leaf_tags{state="ok"} 1`)
			})
			in.stop(0)
			kit.Must(in.T, os.WriteFile(filepath.Join(in.nodes[0].Data, "recent"), []byte("damaged\n"), 0o600))
			in.again(0) // the file is only a hint
			in.take(order)
		},
	},
}

// overHTTP lets calls fail whose generator does not listen any more.
func overHTTP(c callers.Call) bool { return c.Kind == "HTTP" && callers.AnyFailure(c) }

// pause lets some time pass, so that a fault comes anywhere in what a process does.
func pause(in *installation, most time.Duration) {
	select {
	case <-time.After(time.Duration(in.random.Int64N(int64(most)))):
	case <-in.Context().Done():
	}
}

// inbox is where answers come.
func (in *installation) inbox() (subject string, answers *nats.Subscription) {
	in.Helper()
	subject = in.nc.NewInbox()
	answers, err := in.nc.SubscribeSync(subject)
	kit.Must(in.T, err)
	return subject, answers
}

// answer waits for the next answer, and returns its error.
func answer(in *installation, answers *nats.Subscription) error {
	in.Helper()
	msg, err := answers.NextMsg(testkit.Patience)
	if err != nil {
		in.Fatalf("a request was not answered: %v", err)
	}
	return bus.ReplyError(msg)
}

// waiting leaves so many requests with the one generator that wait for a store that takes no writes.
func (in *installation) waiting(count int64) *nats.Subscription {
	in.Helper()
	in.refuseWrites(bus.BucketTags, true)
	inbox, answers := in.inbox()
	for range count {
		kit.Must(in.T, in.nc.PublishRequest(bus.SubjectSegment+"."+order, inbox, []byte("1000")))
	}
	testkit.Eventually(in.T, "the requests wait", func() bool {
		found := kit.States(in.nc)
		return len(found) == 1 && found[0].Counts.Waiting == count
	})
	return answers
}
