package generator

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/snowflake"
)

func TestAllocatorEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		event         allocator.Event
		subject, body string
	}{
		{
			allocator.Refilled{Tag: "a.b", Range: bus.Range{First: 1, Last: 100}, Step: 100, Cause: allocator.CauseDemand, Elapsed: 1500 * time.Microsecond},
			"leaf.events.info.segment.refill.a.b",
			`{"node":"n1","tag":"a.b","first":"1","last":"100","step":100,"cause":"demand","elapsed_ms":1.5}`,
		},
		{
			allocator.RefillFailed{Tag: "a", Err: errors.New("x < y"), Left: 7},
			"leaf.events.alert.segment.refill_failed.a",
			`{"node":"n1","tag":"a","error":"x < y","left":7}`,
		},
		{allocator.Starved{Tag: "a", Waiting: 3}, "leaf.events.alert.segment.starved.a", `{"node":"n1","tag":"a","waiting":3}`},
		{
			allocator.Regressed{Tag: "a", Got: 5, Seen: 9, Action: allocator.Advanced},
			"leaf.events.alert.segment.regressed.a",
			`{"node":"n1","tag":"a","store":"mysql","got":"5","seen":"9","action":"advanced"}`,
		},
		{
			allocator.Regressed{Tag: "a", Got: 5, Seen: 9, Action: allocator.Refused, InDoubt: bus.Range{First: 5, Last: 8}},
			"leaf.events.alert.segment.regressed.a",
			`{"node":"n1","tag":"a","store":"mysql","got":"5","seen":"9","action":"refused","first":"5","last":"8"}`,
		},
		{
			allocator.Recovered{Tag: "a", Episode: "starved"}, "leaf.events.info.segment.recovered.a",
			`{"node":"n1","tag":"a","episode":"starved"}`,
		},
	} {
		checkEvent(t, c.event, allocatorEvent("n1", "mysql", c.event), c.subject, c.body)
	}
}

func TestSnowflakeEvents(t *testing.T) {
	t.Parallel()
	held := snowflake.Held{Worker: 7, ReservedUntil: 1_700_000_000_000}
	const (
		worker   = `{"node":"n1","worker":7,"registry":"kv","reserved_until_ms":1700000000000}`
		episode7 = `{"node":"n1","worker":7,"episode":"`
	)
	for _, c := range []struct {
		event         snowflake.Event
		subject, body string
	}{
		{
			snowflake.ClockBackwards{Worker: 7, Offset: 3, Last: 1003, Now: 1000, Action: snowflake.Waited},
			"leaf.events.alert.clock.backwards.7",
			`{"node":"n1","worker":7,"offset_ms":3,"last_ms":1003,"now_ms":1000,"action":"waited"}`,
		},
		{
			snowflake.ClockBackwards{Worker: 7, Offset: 30, Last: 1030, Now: 1000, Action: snowflake.Refused},
			"leaf.events.alert.clock.backwards.7",
			`{"node":"n1","worker":7,"offset_ms":30,"last_ms":1030,"now_ms":1000,"action":"refused"}`,
		},
		{
			snowflake.ClockSkewed{Now: 5000, Expected: 2000, Peers: 2010, Threshold: 1500 * time.Millisecond},
			"leaf.events.alert.clock.skewed.n1", `{"node":"n1","now_ms":5000,"peers_ms":2010,"threshold_ms":1500}`,
		},
		{
			snowflake.ClockSkewed{Now: 5000, Expected: 2000, Threshold: time.Second},
			"leaf.events.alert.clock.skewed.n1", `{"node":"n1","now_ms":5000,"recorded_ms":2000,"threshold_ms":1000}`,
		},
		{
			snowflake.ClockSkewed{Now: 5000, Recorded: 12_000, Threshold: 5 * time.Second},
			"leaf.events.alert.clock.skewed.n1", `{"node":"n1","now_ms":5000,"recorded_ms":12000,"threshold_ms":5000}`,
		},
		{
			snowflake.ClockSkewed{Now: 5000, Peers: 3000, Threshold: time.Second},
			"leaf.events.alert.clock.skewed.n1", `{"node":"n1","now_ms":5000,"peers_ms":3000,"threshold_ms":1000}`,
		},
		{snowflake.WorkerAcquired{Held: held}, "leaf.events.info.worker.acquired.7", worker},
		{snowflake.WorkerReleased{Held: held}, "leaf.events.info.worker.released.7", worker},
		{snowflake.WorkerLost{Held: held}, "leaf.events.alert.worker.lost.7", worker},
		{snowflake.WorkerExpiring{Held: held}, "leaf.events.alert.worker.expiring.7", worker},
		{snowflake.Ending{Worker: 7, End: 9000}, "leaf.events.alert.worker.ending.7", `{"node":"n1","worker":7,"end_ms":9000}`},
		{snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeBackwards}, "leaf.events.info.clock.recovered.7", episode7 + `backwards"}`},
		{snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeSkewed}, "leaf.events.info.clock.recovered.n1", episode7 + `skewed"}`},
		{snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeExpiring}, "leaf.events.info.worker.recovered.7", episode7 + `expiring"}`},
		{snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeLost}, "leaf.events.info.worker.recovered.7", episode7 + `lost"}`},
	} {
		checkEvent(t, c.event, snowflakeEvent("n1", "kv", c.event), c.subject, c.body)
	}
}

// checkEvent checks that msg is this event of the node n1, and a CloudEvent.
func checkEvent(t *testing.T, event any, msg *nats.Msg, subject, body string) {
	t.Helper()
	if msg.Subject != subject || string(msg.Data) != body {
		t.Errorf("%T: %s %s, want %s %s", event, msg.Subject, msg.Data, subject, body)
	}
	e, err := bus.ParseEvent(msg.Subject, msg.Header, msg.Data)
	if err != nil {
		t.Errorf("%T: %v", event, err)
		return
	}
	if e.SpecVersion != "1.0" || e.ID == "" || e.ID != msg.Header.Get(nats.MsgIdHdr) || e.Source != "/leaf/n1" ||
		e.ContentType != "application/json" || e.Key != msg.Header.Get("ce-subject") || time.Since(e.Time) > time.Minute {
		t.Errorf("%T: %+v with header %v", event, e, msg.Header)
	}
	if want := "leaf." + subject[len("leaf.events.")+len(e.Severity)+1:len(subject)-len(e.Key)-1]; e.Type != want {
		t.Errorf("%T: type %s, want %s", event, e.Type, want)
	}
}
