package generator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/outbox"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// Each event has its subject and its body, and a follower reads back what was published. Each type of event is in the
// table.
func TestEvents(t *testing.T) {
	t.Parallel()
	of := func(kind, key string, body any) *nats.Msg { return outbox.NewEvent(kind, key, "n", body) }
	kv := func(e allocator.Event) *nats.Msg { return of(allocatorEvent("n", "kv", e)) }
	flake := func(e snowflake.Event) *nats.Msg { return of(snowflakeEvent("n", "kv", e)) }
	tag := events.Tag{Node: "n",
		TagRecord: admin.TagRecord{Tag: "a.b", MaxID: 7, Step: 10, Description: "x < y", Updated: time.Unix(0, 0).UTC()}}
	node := events.Node{Node: "n", Version: "v1", Address: "nats://h:4222", Config: map[string]string{"tag": "a"}}
	held := snowflake.Held{Worker: 7, ReservedUntil: 1_700_000_000_000}
	const (
		worker  = `{"node":"n","worker":7,"registry":"kv","reserved_until_ms":1700000000000}`
		episode = `{"node":"n","worker":7,"episode":"`
		record  = `{"node":"n","tag":"a.b","max_id":"7","step":10,"description":"x < y","updated":"1970-01-01T00:00:00Z"}`
		process = `{"node":"n","version":"v1","address":"nats://h:4222","config":{"tag":"a"},"started":"0001-01-01T00:00:00Z"}`
	)
	seen := make(map[string]bool)
	for _, c := range []struct {
		msg           *nats.Msg
		subject, body string
	}{
		{
			kv(allocator.Refilled{Tag: "a.b", Range: bus.Range{First: 1 << 60, Last: 1 << 60}, Step: 100,
				Cause: allocator.CauseBatch, Elapsed: 1500 * time.Microsecond}),
			"info.segment.refill.a.b",
			`{"node":"n","tag":"a.b","first":"1152921504606846976","last":"1152921504606846976",` +
				`"step":100,"cause":"batch","elapsed_ms":1.5}`,
		},
		{kv(allocator.RefillFailed{Tag: "a", Err: errors.New("x < y"), Left: 7}), "alert.segment.refill_failed.a",
			`{"node":"n","tag":"a","error":"x < y","left":7}`},
		{kv(allocator.Ending{Tag: "a.b", Left: 5, Limit: 9}), "alert.segment.ending.a.b",
			`{"node":"n","tag":"a.b","left":5,"limit":"9"}`},
		{kv(allocator.Starved{Tag: "a", Waiting: 3}), "alert.segment.starved.a", `{"node":"n","tag":"a","waiting":3}`},
		{
			kv(allocator.Regressed{Tag: "a", Got: 5, Seen: 9, Action: allocator.Advanced}),
			"alert.segment.regressed.a", `{"node":"n","tag":"a","store":"kv","got":"5","seen":"9","action":"advanced"}`,
		},
		{
			kv(allocator.Regressed{Tag: "a", Got: 5, Seen: 9, Action: allocator.Dropped,
				InDoubt: bus.Range{First: 5, Last: 8}}),
			"alert.segment.regressed.a",
			`{"node":"n","tag":"a","store":"kv","got":"5","seen":"9","action":"dropped","first":"5","last":"8"}`,
		},
		{kv(allocator.Recovered{Tag: "a", Episode: "starved"}), "info.segment.recovered.a",
			`{"node":"n","tag":"a","episode":"starved"}`},

		{
			flake(snowflake.ClockBackwards{Worker: 7, Offset: 3, Last: 1003, Now: 1000, Action: snowflake.Waited}),
			"alert.clock.backwards.7",
			`{"node":"n","worker":7,"offset_ms":3,"last_ms":1003,"now_ms":1000,"action":"waited"}`,
		},
		{
			flake(snowflake.ClockSkewed{Now: 5000, Expected: 2000, Peers: 2010, Threshold: 1500}),
			"alert.clock.skewed.n", `{"node":"n","now_ms":5000,"peers_ms":2010,"threshold_ms":1500}`,
		},
		{
			flake(snowflake.ClockSkewed{Now: 5000, Expected: 2000, Threshold: 1000}),
			"alert.clock.skewed.n", `{"node":"n","now_ms":5000,"recorded_ms":2000,"threshold_ms":1000}`,
		},
		{
			flake(snowflake.ClockSkewed{Now: 5000, Recorded: 12_000, Threshold: 5000}),
			"alert.clock.skewed.n", `{"node":"n","now_ms":5000,"recorded_ms":12000,"threshold_ms":5000}`,
		},
		{
			flake(snowflake.WorkerAcquired{Held: held, From: 5, After: 4}),
			"info.worker.acquired.7", strings.Replace(worker, `"reserved`, `"from_ms":5,"after_ms":4,"reserved`, 1),
		},
		{flake(snowflake.WorkerReleased{Held: held}), "info.worker.released.7", worker},
		{flake(snowflake.WorkerLost{Held: held, Until: 6}), "alert.worker.lost.7",
			strings.Replace(worker, `"reserved`, `"until_ms":6,"reserved`, 1)},
		{flake(snowflake.WorkerExpiring{Held: held}), "alert.worker.expiring.7", worker},
		{flake(snowflake.Ending{Worker: 7, End: 9000}), "alert.worker.ending.7",
			`{"node":"n","worker":7,"end_ms":9000}`},
		{flake(snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeBackwards}), "info.clock.recovered.7",
			episode + `backwards"}`},
		{flake(snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeSkewed}), "info.clock.recovered.n",
			`{"node":"n","episode":"skewed"}`},
		{flake(snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeExpiring}), "info.worker.recovered.7",
			episode + `expiring"}`},
		{flake(snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeLost}), "info.worker.recovered.7",
			episode + `lost"}`},

		{kv(allocator.Damaged{Tag: "a.b", Err: errors.New("x < y")}), "alert.tag.damaged.a.b",
			`{"node":"n","tag":"a.b","error":"x < y"}`},
		{kv(allocator.Shadowed{Tag: "a.b"}), "alert.tag.shadowed.a.b",
			`{"node":"n","tag":"a.b","error":"the database has a row with the name of this tag, which is not in the ` +
				`database: the row is not served; delete it, or choose another name for it"}`},
		{kv(allocator.Recovered{Tag: "a.b", Episode: "damaged"}), "info.tag.recovered.a.b",
			`{"node":"n","tag":"a.b","episode":"damaged"}`},
		{kv(allocator.Recovered{Tag: "a.b", Episode: "shadowed"}), "info.tag.recovered.a.b",
			`{"node":"n","tag":"a.b","episode":"shadowed"}`},
		{
			of("records.unavailable", "n", events.Unavailable{Node: "n", Error: "x", SinceMS: 17}),
			"alert.records.unavailable.n", `{"node":"n","error":"x","since_ms":17}`,
		},
		{of("records.recovered", "n", events.Recovered{Node: "n", Episode: "unavailable"}), "info.records.recovered.n",
			`{"node":"n","episode":"unavailable"}`},
		{of("registry.unavailable", "n", events.Unavailable{Node: "n", Error: "x", SinceMS: 17}),
			"alert.registry.unavailable.n", `{"node":"n","error":"x","since_ms":17}`},
		{of("registry.recovered", "n", events.Recovered{Node: "n", Episode: "unavailable"}),
			"info.registry.recovered.n", `{"node":"n","episode":"unavailable"}`},
		{of("nats.degraded", "n", events.NATSDegraded{Node: "n", Cause: "x"}), "alert.nats.degraded.n",
			`{"node":"n","cause":"x"}`},
		{of("nats.recovered", "n", events.Recovered{Node: "n", Episode: "degraded"}), "info.nats.recovered.n",
			`{"node":"n","episode":"degraded"}`},
		{of("tag.created", "a.b", tag), "info.tag.created.a.b", record},
		{of("tag.updated", "a.b", tag), "info.tag.updated.a.b", record},
		{of("tag.deleted", "a.b", tag), "info.tag.deleted.a.b", record},
		{of("node.stale", "n", events.Stale{Node: "n", Error: "away"}), "alert.node.stale.n",
			`{"node":"n","error":"away"}`},
		{
			of("node.lost", "n",
				events.Lost{Node: "n", Run: "r", LastHeardMS: 17, Worker: new(int64(7)), UntilMS: 18}),
			"alert.node.lost.n", `{"node":"n","run":"r","last_heard_ms":17,"worker":7,"until_ms":18}`,
		},
		{of("node.recovered", "n", events.Recovered{Node: "n", Episode: "stale"}), "info.node.recovered.n",
			`{"node":"n","episode":"stale"}`},
		{of("node.started", "n", node), "info.node.started.n", process},
		{of("node.stopped", "n", node), "info.node.stopped.n", process},
	} {
		if c.msg.Subject != "leaf.events."+c.subject || string(c.msg.Data) != c.body {
			t.Errorf("%s %s, want %s %s", c.msg.Subject, c.msg.Data, c.subject, c.body)
		}
		e, err := events.Parse(c.msg.Subject, c.msg.Header, c.msg.Data)
		if err != nil || string(wire.Encode(e.Body)) != c.body {
			t.Errorf("%s is read back as %+v, %v", c.body, e.Body, err)
		}
		if e.SpecVersion != "1.0" || e.ID == "" || e.ID != c.msg.Header.Get(nats.MsgIdHdr) || e.Source != "/leaf/n" ||
			e.ContentType != "application/json" || e.Key != c.msg.Header.Get("ce-subject") ||
			time.Since(e.Time) > time.Minute ||
			!strings.HasSuffix(c.subject, strings.TrimPrefix(e.Type, "leaf")+"."+e.Key) {
			t.Errorf("%s: %+v with header %v", c.subject, e, c.msg.Header)
		}
		seen[e.Type] = true
	}
	for what := range events.Types() {
		if !seen[what] {
			t.Errorf("%s is never published, or is not in the table", what)
		}
	}
}
