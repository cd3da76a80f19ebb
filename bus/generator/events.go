package generator

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/snowflake"
)

// allocatorEvent returns the kind, the key and the body of an event of the allocator. store is the
// kind of store.
func allocatorEvent(node, store string, e allocator.Event) (kind, key string, body any) {
	switch e := e.(type) {
	case allocator.Refilled:
		ms := float64(e.Elapsed.Microseconds()) / 1000
		return "segment.refill", e.Tag, events.Refill{
			Node: node, Tag: e.Tag, First: e.First, Last: e.Last, Step: e.Step, Cause: string(e.Cause), ElapsedMS: ms}
	case allocator.RefillFailed:
		return "segment.refill_failed", e.Tag, events.RefillFailed{
			Node: node, Tag: e.Tag, Error: e.Err.Error(), Left: e.Left}
	case allocator.Starved:
		return "segment.starved", e.Tag, events.Starved{Node: node, Tag: e.Tag, Waiting: e.Waiting}
	case allocator.Ending:
		return "segment.ending", e.Tag, events.Ending{
			Node: node, Tag: e.Tag, Left: e.Left, Limit: e.Limit}
	case allocator.Regressed:
		return "segment.regressed", e.Tag, events.Regressed{
			Node: node, Tag: e.Tag, Store: store, Got: e.Got, Seen: e.Seen, Action: string(e.Action),
			First: e.InDoubt.First, Last: e.InDoubt.Last}
	case allocator.Damaged:
		return "tag.damaged", e.Tag, events.TagProblem{Node: node, Tag: e.Tag, Error: e.Err.Error()}
	case allocator.Shadowed:
		return "tag.shadowed", e.Tag, events.TagProblem{
			Node: node, Tag: e.Tag, Error: "the database has a row with the name of this tag, " +
				"which is not in the database: the row is not served; delete it, or choose another name for it"}
	case allocator.Recovered:
		kind := "segment.recovered"
		if e.Episode == "damaged" || e.Episode == "shadowed" {
			kind = "tag.recovered"
		}
		return kind, e.Tag, events.Recovered{Node: node, Tag: e.Tag, Episode: e.Episode}
	default:
		panic(fmt.Sprintf("generator: unknown event %T", e))
	}
}

// snowflakeEvent returns the kind, the key and the body of an event of snowflakes.
func snowflakeEvent(node, registry string, e snowflake.Event) (kind, about string, body any) {
	worker := events.Worker{Node: node, Registry: registry}
	of := func(kind string, h snowflake.Held) (string, string, any) {
		worker.Worker, worker.ReservedUntilMS = h.Worker, h.ReservedUntil
		return kind, key(h.Worker), worker
	}
	switch e := e.(type) {
	case snowflake.ClockBackwards:
		return "clock.backwards", key(e.Worker), events.ClockBackwards{
			Node: node, Worker: e.Worker, OffsetMS: e.Offset, LastMS: e.Last, NowMS: e.Now, Action: string(e.Action)}
	case snowflake.ClockSkewed:
		body := events.ClockSkewed{Node: node, NowMS: e.Now, PeersMS: e.Peers, ThresholdMS: e.Threshold}
		if e.Peers == 0 {
			body.RecordedMS = cmp.Or(e.Recorded, e.Expected)
		}
		return "clock.skewed", node, body
	case snowflake.WorkerAcquired:
		worker.FromMS, worker.AfterMS = e.From, e.After
		return of("worker.acquired", e.Held)
	case snowflake.WorkerReleased:
		return of("worker.released", e.Held)
	case snowflake.WorkerLost:
		worker.UntilMS = e.Until
		return of("worker.lost", e.Held)
	case snowflake.WorkerExpiring:
		return of("worker.expiring", e.Held)
	case snowflake.Ending:
		return "worker.ending", key(e.Worker), events.WorkerEnding{
			Node: node, Worker: e.Worker, EndMS: e.End}
	case snowflake.Recovered:
		kind, about := "worker.recovered", key(e.Worker)
		over := events.Recovered{Node: node, Worker: &e.Worker, Episode: e.Episode}
		switch e.Episode {
		case snowflake.EpisodeBackwards:
			kind = "clock.recovered"
		case snowflake.EpisodeSkewed:
			kind, about, over.Worker = "clock.recovered", node, nil // it may hold none
		}
		return kind, about, over
	default:
		panic(fmt.Sprintf("generator: unknown event %T", e))
	}
}

// key is a worker's number as the last token of an event's subject.
func key(worker int64) string { return strconv.FormatInt(worker, 10) }
