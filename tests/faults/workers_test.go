package faults

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// workers are faults of the registry of workers, and of those who hold one.
var workers = []scenario{
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
		fault: "the registry is wiped, and set back", in: []setup{kv}, tags: []string{snowflakes, order},
		flags: []string{"--worker-range", "0-7", "--worker-reserve", "6s"},
		fails: func(c callers.Call) bool { return once(c) || noWorker(c) },
		strike: func(in *installation) {
			putBack := in.nats.save(wire.BucketWorkers)
			in.kill(1) // its record has another incarnation afterwards
			in.again(1)
			kit.Must(in.T, in.js.DeleteKeyValue(in.Context(), wire.BucketWorkers))
			in.each(func(i int) { in.alerted("worker.lost.*", fmt.Sprint("n", i)) })
			in.join()
			in.held(3)
			in.more(100)
			putBack()
			in.held(3)
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
		flags: []string{"--worker-id", "7", "--worker-reserve", "6s"},
		strike: func(in *installation) {
			last, _ := snowflake(in.take(snowflakes))
			in.kill(0)
			entry, err := in.bucket(wire.BucketWorkers).Get(in.Context(), "7")
			kit.Must(in.T, err)
			var record struct {
				ReservedUntilMS int64 `json:"reserved_until_ms"`
			}
			kit.Must(in.T, json.Unmarshal(entry.Value(), &record))
			in.enter()
			in.refused(snowflakes, 1, bus.NoWorkerID, "")
			in.lacking(1, "worker", "7 by n0 until")
			in.take(order)
			ms, _ := snowflake(in.take(snowflakes))
			if end := record.ReservedUntilMS; ms < end || last >= end {
				in.Errorf("the successor issued at %d, and the dead one at %d; it had reserved until %d", ms, last, end)
			}
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
