package faults

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// workers are faults of the registry of workers, and of those who hold one.
var workers = []scenario{
	{
		// Nobody notices, also where generators are killed and started meanwhile.
		fault: "ZooKeeper is gone for a while, and hangs", in: []setup{inZooKeeper}, fails: once,
		strike: func(in *installation) {
			before := in.held(2)
			in.keeper.Refuse(true)
			in.more(100)
			in.kill(0)
			in.again(0)
			in.stop(1)
			in.again(1)
			in.more(100)
			in.keeper.Refuse(false)
			in.ready(2)
			in.keeper.Hang(true)
			in.more(500)
			in.keeper.Hang(false)
			if after := in.held(2); before["n0"] != after["n0"] || before["n1"] != after["n1"] {
				in.Errorf("the workers were %v and are %v", before, after)
			}
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
	{
		// The workers are few: one that another still uses would soon be taken.
		fault: "the registry is wiped, and set back", in: []setup{kv, inZooKeeper}, tags: []string{snowflakes, order},
		flags: []string{"--worker-range", "0-7", "--worker-reserve", "6s"},
		fails: func(c callers.Call) bool { return once(c) || noWorker(c) },
		strike: func(in *installation) {
			putBack := func() {}
			if !in.zookeeper {
				putBack = in.nats.save(bus.BucketWorkers)
			}
			in.kill(1) // its record has another incarnation afterwards
			in.again(1)
			in.wipeRegistry()
			in.each(func(i int) { in.alerted("worker.lost.*", fmt.Sprint("n", i)) })
			if !in.zookeeper { // where a newcomer would wait for one of these few numbers
				in.join()
			}
			in.held(len(in.nodes))
			in.more(100)
			putBack()
			in.held(len(in.nodes))
			in.more(100)
		},
	},
	{
		// Another takes the worker. The one that thaws issues none of its IDs that are not of its own time.
		fault: "a generator is frozen for longer than its reservation", in: []setup{kvAlone},
		flags: []string{"--worker-range", "7-8", "--worker-reserve", "2s"}, tags: []string{snowflakes},
		fails: callers.AnyFailure,
		strike: func(in *installation) {
			taken := in.held(1)["n0"]
			in.freeze(0)
			in.enter("--worker-range", fmt.Sprintf("%d-%d", taken, taken))
			in.take(snowflakes)
			in.thaw(0)
			in.alerted(fmt.Sprint("worker.lost.", taken), "n0")
			if now := in.held(2); now["n1"] != taken {
				in.Errorf("the workers are %v, and %d was taken", now, taken)
			}
			in.more(100)
		},
	},
	{
		// Alone, a generator whose worker is taken stays, and says who has it until when. Tags need no worker.
		fault: "the holder of the worker is dead", in: []setup{kvAlone}, tags: none,
		flags: []string{"--worker-id", "7", "--worker-reserve", "3s"},
		strike: func(in *installation) {
			last, _ := snowflake(in.take(snowflakes))
			in.kill(0)
			entry, err := in.bucket(bus.BucketWorkers).Get(in.Context(), "7")
			kit.Must(in.T, err)
			var record struct {
				ReservedUntilMS int64 `json:"reserved_until_ms"`
			}
			kit.Must(in.T, json.Unmarshal(entry.Value(), &record))
			in.enter()
			in.refused(snowflakes, 1, bus.NoWorkerID, "7 by n0 until")
			in.take(order)
			ms, _ := snowflake(in.take(snowflakes))
			if end := record.ReservedUntilMS; ms < end || last >= end {
				in.Errorf("the successor issued at %d, and the dead one at %d; it had reserved until %d", ms, last, end)
			}
		},
	},
	{
		fault: "an operator releases the worker of a dead generator", in: []setup{kvAlone}, tags: none,
		flags: []string{"--worker-id", "7"},
		strike: func(in *installation) {
			last := in.take(snowflakes)
			in.kill(0)
			in.enter()
			in.refused(snowflakes, 1, bus.NoWorkerID, "7 by n0 until")
			in.leaf("workers", "release", "7", "--yes")
			if id := in.take(snowflakes); id <= last {
				in.Errorf("%d came after %d", id, last)
			}
		},
	},
	{
		// The others answer. One that stops leaves its worker.
		fault: "one generator more than there are workers", in: []setup{kv}, fails: overHTTP,
		flags: []string{"--worker-range", "0-1", "--worker-grace", "1s"},
		strike: func(in *installation) {
			in.enter()
			in.lacking(1, "worker", "until 2")
			in.more(200)
			in.stop(0)
			in.held(2)
			in.more(200)
		},
	},
	{
		fault: "as many generators as workers start at once", in: []setup{kvEmpty}, tags: none,
		flags: []string{"--worker-range", "0-4"},
		strike: func(in *installation) {
			for i := range 5 {
				kit.Start(in.T, kit.Command(in.T, in.TempDir(), nil, append([]string{"serve"}, in.arguments(i)...)...))
			}
			in.held(5)
			in.ready(5)
		},
	},
	{
		// Nobody can set the clock here. In its place the last report is moved ahead.
		fault: "the clock is behind at a start", in: []setup{kvAlone}, tags: none,
		strike: func(in *installation) {
			worker := in.held(1)["n0"]
			in.stop(0)
			in.reported(worker, time.Hour)
			in.serve(0).Want(in.T, 1, "--node NEWNAME")
			if found := in.events("alert.clock.skewed.n0"); len(found) == 0 { // it has ended
				in.Error("there is no alert")
			}
			at := in.reported(worker, 2*time.Second)
			in.again(0)
			if ms, now := snowflake(in.take(snowflakes)); ms < at || now != worker {
				in.Errorf("worker %d issued at %d, want worker %d from %d on", now, ms, worker, at)
			}
		},
	},
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
		in.refuseWrites(bus.BucketWorkers, on)
	}
}

// wipeRegistry deletes all records.
func (in *installation) wipeRegistry() {
	in.Helper()
	if !in.zookeeper {
		kit.Must(in.T, in.js.DeleteKeyValue(in.Context(), bus.BucketWorkers))
		return
	}
	conn, _, err := zk.Connect(strings.Split(kit.ZooKeeperHosts(in.T), ","), 10*time.Second, zk.WithLogInfo(false))
	kit.Must(in.T, err)
	defer conn.Close()
	folder := path.Join("/leaf", in.place, "leaf_forever")
	names, _, err := conn.Children(folder)
	kit.Must(in.T, err)
	for _, name := range names {
		kit.Must(in.T, conn.Delete(path.Join(folder, name), -1))
	}
}

// reported changes when a worker was reported last, and returns that in Unix milliseconds.
func (in *installation) reported(worker int64, ahead time.Duration) (ms int64) {
	in.Helper()
	kv, key := in.bucket(bus.BucketWorkers), fmt.Sprint(worker)
	entry, err := kv.Get(in.Context(), key)
	kit.Must(in.T, err)
	var record map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(entry.Value())))
	decoder.UseNumber()
	kit.Must(in.T, decoder.Decode(&record))
	ms = time.Now().Add(ahead).UnixMilli()
	record["reported_ms"] = ms
	text, err := json.Marshal(record)
	kit.Must(in.T, err)
	_, err = kv.Put(in.Context(), key, text)
	kit.Must(in.T, err)
	return ms
}
