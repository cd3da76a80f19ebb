package faults

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// processes are what happens to generators themselves.
var processes = []scenario{
	{
		fault: "generators are killed, and come back", in: []setup{kvThree}, fails: once,
		strike: func(in *installation) {
			before := in.held(3)
			for range 3 {
				in.more(50 + in.random.Int64N(300))
				i := in.random.IntN(3)
				in.kill(i)
				in.more(100) // of the others
				in.again(i)
			}
			if after := in.held(3); !maps.Equal(before, after) {
				in.Errorf("the workers were %v and are %v", before, after)
			}
		},
	},
	{
		// The NATS server sends no pings, so it does not notice the standstill and keeps the requests of that time.
		fault: "callers gave up during a standstill", tags: none,
		in: []setup{{name: "kv", nodes: 1, config: "ping_interval: 2m"}},
		strike: func(in *installation) {
			in.take(snowflakes)
			before := in.take(order)
			in.freeze(0)
			late := in.send(100, "10", order)
			<-time.After(6 * time.Second) // it drops what is older than 5 s
			in.thaw(0)
			if id := in.take(order); id > before+10 { // answers to a few tries of take may have come too late
				in.Errorf("ID %d came after %d: requests whose callers had given up used up IDs", id, before)
			}
			if n, _, err := late.Pending(); n > 0 || err != nil {
				in.Errorf("%d requests of the standstill were answered: %v", n, err)
			}
		},
	},
	{
		// The command names the generator. It asks the store before it hands out an ID, over HTTP too.
		fault: "max_id moves while a generator stands still", in: []setup{kv, inMySQL}, fails: callers.AnyFailure,
		strike: func(in *installation) {
			in.freeze(1)
			if out := in.leaf("tag", "set", order, "--max-id", "5000000", "--json"); !strings.Contains(out, `"n1"`) {
				in.Errorf("answered %s, which does not name the generator", out)
			}
			in.callers.Floor(order, 5_000_000)
			in.thaw(1)
			for range 10 {
				status, body := in.get(1, "/api/segment/get/order")
				if id, err := strconv.ParseInt(body, 10, 64); err != nil || id < 5_000_000 {
					in.Fatalf("answered %d %s after max_id was moved to 5000000", status, body)
				}
			}
			in.held(2)
		},
	},
	{
		fault: "SIGTERM comes while thousands of requests are in the queues", in: []setup{kvAlone}, tags: none,
		flags: []string{"--tag", "long:100000", "--max-step", "100000"},
		strike: func(in *installation) {
			all := []string{"long", snowflakes, order, invoice, coupon}
			for _, tag := range all {
				in.take(tag)
			}
			in.freeze(0) // for less than the 5 s after which it would drop them
			answers := in.send(2000, "3", all...)
			in.signal(0, syscall.SIGTERM)
			in.thaw(0)
			in.answered(2000*len(all), answers, bus.Draining)
			in.ended(0).Want(in.T, 0)
			if stopped := in.events("info.node.stopped.n0"); len(stopped) != 1 {
				in.Errorf("events %+v", stopped)
			}
		},
	},
	{
		fault: "SIGTERM comes while requests wait for the store", in: []setup{embedded}, tags: none,
		flags: []string{"--max-wait", "1m", "--drain-timeout", "1m"},
		strike: func(in *installation) {
			in.refuseWrites(wire.BucketTags, true)
			answers := in.send(20, "1000", order)
			status := in.getLater("/api/segment/get/order?count=1000")
			in.waiting(21)
			in.signal(0, syscall.SIGTERM)
			in.refused(idle, 1, bus.Draining, "") // new ones
			in.refuseWrites(wire.BucketTags, false)
			in.answered(20, answers)
			if got := <-status; got != 200 {
				in.Errorf("over HTTP the answer is %d", got)
			}
			in.ended(0).Want(in.T, 0)
		},
	},
	{
		fault: "the time for a stop is over, and then a second signal comes", in: []setup{embedded}, tags: none,
		flags: []string{"--max-wait", "1m", "--drain-timeout", "200ms"},
		strike: func(in *installation) {
			in.refuseWrites(wire.BucketTags, true)
			answers := in.send(20, "1000", order)
			status := in.getLater("/api/segment/get/order?count=1000")
			in.waiting(21)
			in.signal(0, os.Interrupt)
			for range 20 {
				msg, err := answers.NextMsg(testkit.Patience)
				kit.Must(in.T, err)
				if err := bus.ReplyError(msg); !is(err, bus.Draining) {
					in.Errorf("answered %v, want that it is draining", err)
				}
			}
			if got := <-status; got != 500 {
				in.Errorf("over HTTP the answer is %d", got)
			}
			in.ended(0).Want(in.T, 0)
			in.nodes[0] = in.nodes[0].Again("--drain-timeout", "10m")
			in.send(1, "1000", order)
			in.waiting(1)
			in.signal(0, syscall.SIGTERM)
			in.refused(idle, 1, bus.Draining, "")
			testkit.Eventually(in.T, "a further signal ends it", func() bool { // those that come at once are one
				_ = in.nodes[0].Signal(syscall.SIGTERM) // it may have ended
				return in.nodes[0].Ended()
			})
			in.ended(0).Want(in.T, 1)
		},
	},
	{
		fault: "another process writes to the file of the worker", in: []setup{embedded}, tags: none,
		strike: func(in *installation) {
			path := filepath.Join(in.nodes[0].Data, "worker")
			in.take(snowflakes)
			old, err := os.ReadFile(path)
			kit.Must(in.T, err)
			testkit.Eventually(in.T, "the end", func() bool { // it may have written just now
				kit.Must(in.T, os.WriteFile(path, old, 0o600))
				return in.nodes[0].Ended()
			})
			in.ended(0).Want(in.T, 1, "another process has used this data folder")
		},
	},
	{
		fault: "a generator is restarted after a day's work", in: []setup{embedded}, tags: none,
		strike: func(in *installation) {
			in.take(order)
			in.stop(0)
			in.again(0)
			testkit.Eventually(in.T, "a segment of the tag of that day, and of no other", func() bool {
				_, metrics := in.get(0, "/metrics")
				return strings.Contains(metrics, fmt.Sprintf("\nleaf_tags{state=%q} 1\n", "ok"))
			})
		},
	},
	{
		// The alert comes before the end of the reservation. Then snowflakes are refused, and tags are not.
		fault: "the registry is gone for longer than the reservation", in: []setup{kvAlone, zooKeeperAlone},
		flags: []string{"--worker-reserve", "4s"}, fails: noWorker, alert: "worker.expiring.*",
		strike: func(in *installation) {
			before := in.held(1)
			in.registryAway(true)
			in.alerted("worker.expiring.*", "n0")
			in.refused(snowflakes, 1, bus.NoWorkerID, "")
			if status, body := in.get(0, "/readyz"); status != 503 || !strings.Contains(body, `"worker"`) {
				in.Errorf("/readyz: %d %s", status, body)
			}
			in.take(order)
			in.registryAway(false)
			in.take(snowflakes)
			if after := in.held(1); before["n0"] != after["n0"] {
				in.Errorf("the worker was %v and is %v", before, after)
			}
		},
	},
}

// waiting waits until so many requests wait at the one generator.
func (in *installation) waiting(count int64) {
	in.Helper()
	in.await(fmt.Sprint(count, " requests wait"), func(all []kit.State) bool {
		return len(all) == 1 && all[0].Counts.Waiting == count
	})
}

// noWorker lets snowflakes be refused.
func noWorker(c callers.Call) bool {
	return c.Tag == snowflakes && callers.Refused(bus.NoWorkerID)(c)
}

// registryAway makes the registry unavailable.
func (in *installation) registryAway(on bool) {
	in.Helper()
	if in.zookeeper {
		in.keeper.Refuse(on)
	} else {
		in.refuseWrites(wire.BucketWorkers, on)
	}
}
