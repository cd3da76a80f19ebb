package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/snowflake"
)

// What a trace finds.
type (
	// Trace is what is known of an ID. Claimed does not mean that a caller got it: the generator
	// may have it in memory, or may have lost it when it ended.
	Trace struct {
		Tag     string       `json:"tag,omitempty"` // empty: a snowflake
		ID      bus.ID       `json:"id"`
		Outcome TraceOutcome `json:"outcome"`
		Message string       `json:"message"` // for people
		// Order is that of the tag, as in [Record].
		Order string `json:"order,omitempty"`
		// Number is that of the ID of an opaque tag. Claims and End are of numbers.
		Number bus.ID `json:"number,omitempty"`
		// Claims are those of the ID. More than one is a contradiction.
		Claims []TracedClaim `json:"claims"`
		// Since is from when on the stream has events of this tag or worker; zero: it has none.
		Since time.Time `json:"since,omitzero"`
		// End is above all IDs of the tag that were claimed.
		End bus.ID `json:"end,omitempty"`
		// Decoded are the parts of a snowflake, and ReservedUntil the end of what its worker has
		// claimed.
		Decoded       *bus.Decoded `json:"decoded,omitempty"`
		ReservedUntil time.Time    `json:"reserved_until,omitzero"`
	}
	// TracedClaim is the claim of a range of a tag, or of a stretch of time of a worker.
	TracedClaim struct {
		Node string    `json:"node"`
		Time time.Time `json:"time"`
		// First to Last is the range; 0 for a worker.
		First bus.ID `json:"first,omitempty"`
		Last  bus.ID `json:"last,omitempty"`
		Cause string `json:"cause,omitempty"` // empty: not recorded
		// Record is true if the tag's or worker's record shows the claim, and no event does.
		Record bool `json:"record,omitempty"`
	}
)

// TraceOutcome is a stable word for what is known of an ID.
type TraceOutcome string

// The outcomes of a trace.
const (
	// Claimed: Trace.Claims says by whom.
	Claimed TraceOutcome = "claimed"
	// NotClaimed: no generator has claimed it yet.
	NotClaimed TraceOutcome = "not_claimed"
	// NotRecorded: it is older than the events in the stream. It is claimed; by whom is no longer
	// recorded. Or it is below the last claim of a strict tag: older ones are not recorded, so it
	// may also have been skipped.
	NotRecorded TraceOutcome = "not_recorded"
	// Gap: it lies below IDs that are claimed, and no event reports it, though the stream has older
	// ones. It was lost or skipped, or its event was lost.
	Gap TraceOutcome = "gap"
	// Impossible: no generator can have issued this snowflake.
	Impossible TraceOutcome = "impossible"
)

// TraceTag returns who claimed an ID of a tag.
func TraceTag(ctx context.Context, from Source, tag string, id int64) (Trace, error) {
	t := Trace{Tag: tag, ID: bus.ID(id), Claims: []TracedClaim{}}
	if err := idspace.CheckTag(tag); err != nil { // it becomes a subject
		return t, err
	}
	var claims []claim
	err := readClaims(ctx, from.JS, tag, func(_ string, c claim, problem error, _ uint64) {
		if problem == nil {
			claims = append(claims, c)
		}
	})
	if err != nil {
		return t, err
	}
	var r Record
	if err := from.Records(ctx, tag, func(record Record) { r = record }); err != nil {
		return t, err
	}
	if r.Opaque != "" {
		revealed, err := from.Reveal(ctx, tag, t.ID)
		if err != nil {
			return t, err
		}
		t.Number = revealed[0]
		id = int64(t.Number) // all claims are of numbers
	}
	if len(claims) > 0 {
		t.Since = claims[0].time()
	}
	claims = sorted(claims, r.Last)
	older := len(claims) == 0 || id < claims[0].First
	for _, c := range claims {
		if c.First <= id && id <= c.Last && len(t.Claims) < mostContradictions {
			t.Claims = append(t.Claims, TracedClaim{Node: c.node, Time: c.time(), First: bus.ID(c.First),
				Last: bus.ID(c.Last), Cause: c.cause, Record: c.message == 0})
		}
	}
	t.End, t.Order = r.End, r.Order
	return t, t.judge(r, id, older)
}

// judge says what is known of an ID of a tag. id is the number of an ID of an opaque tag. older: it
// is below all claims that are known.
func (t *Trace) judge(r Record, id int64, older bool) error {
	switch {
	case r.Problem == "" && r.End == 0 && t.Since.IsZero():
		return fmt.Errorf("%s: %w", t.Tag, allocator.ErrUnknownTag)
	case len(t.Claims) > 1:
		t.Outcome = Claimed
		t.Message = fmt.Sprintf("claimed %d times, which must not be: `leaf audit %s` says more", len(t.Claims), t.Tag)
	case len(t.Claims) == 1:
		t.Outcome, t.Message = Claimed, "claimed by "+t.Claims[0].Node
		if r.Problem == "" && id >= int64(r.End) {
			t.Message += fmt.Sprintf("; but by its record all claims end below %d: `leaf audit %s` says more",
				max(r.End, 1), t.Tag)
		}
	case r.Problem != "":
		return fmt.Errorf("the record of %s cannot be read: %s", t.Tag, r.Problem)
	case id >= int64(r.End):
		t.Outcome, t.Message = NotClaimed, fmt.Sprintf("not claimed yet: %s is claimed below %d", t.Tag, max(r.End, 1))
	case r.Order == idspace.OrderStrict:
		t.Outcome, t.Message = NotRecorded, "below the end of all claims. "+
			"Claims of a strict tag are not kept one by one: only the last one is recorded, and this ID is not in it"
	case older:
		t.Outcome, t.Message = NotRecorded, "older than the stream: claimed; by whom is no longer recorded"
	default:
		t.Outcome, t.Message = Gap, "below the end of all claims, but no event reports it: "+
			"it was lost as a gap, an operator skipped it, or its event was lost"
	}
	return nil
}

// TraceSnowflake returns which generator held the worker of a snowflake at its time. It takes a
// second longer for an ID that cannot have been issued: a replica of the registry may lag behind.
func TraceSnowflake(ctx context.Context, from Source, id bus.ID) (Trace, error) {
	t, err := traceSnowflake(ctx, from, id)
	if err != nil || t.Outcome != Impossible {
		return t, err
	}
	if err := from.awaitReplicas(ctx); err != nil {
		return t, err
	}
	return traceSnowflake(ctx, from, id)
}

func traceSnowflake(ctx context.Context, from Source, id bus.ID) (Trace, error) {
	t := Trace{ID: id, Claims: []TracedClaim{}}
	page, err := from.Workers(ctx, admin.WorkersRequest{Limit: 1}) // for its layout
	if err != nil {
		return t, err
	}
	parts, err := snowflake.Layout(page.Layout).Decode(int64(id))
	if err != nil {
		return t, err
	}
	t.Decoded = &bus.Decoded{
		ID: id, Time: moment(parts.UnixMS), UnixMS: parts.UnixMS, Worker: parts.Worker, Sequence: parts.Sequence,
	}
	trails, _, err := readWorkerEvents(ctx, from.JS, fmt.Sprint(parts.Worker))
	if err != nil {
		return t, err
	}
	trail := trailOf(trails, parts.Worker)
	t.Since = trail.since
	if page, err = from.Workers(ctx, admin.WorkersRequest{From: parts.Worker, Limit: 1}); err != nil {
		return t, err
	}
	var record admin.Worker // its Node is empty if there is none
	if len(page.Workers) > 0 && page.Workers[0].Worker == parts.Worker {
		record = page.Workers[0]
	}
	trail.trace(&t, record, parts.UnixMS)
	return t, nil
}

// trace says in t who held the worker at the time ms.
func (w *workerTrail) trace(t *Trace, record admin.Worker, ms int64) {
	t.ReservedUntil = record.ReservedUntil
	h, until := w.holder(record, ms), record.ReservedUntil.UnixMilli()
	switch {
	case record.Node == "" && len(w.tenures) == 0:
		t.Outcome, t.Message = Impossible, fmt.Sprintf("cannot have been issued: worker %d was never claimed", w.number)
	case record.Node != "" && ms >= until:
		t.Outcome = Impossible
		t.Message = "cannot have been issued: this worker's time is claimed only up to " + moment(until)
	case h == nil:
		t.Outcome = NotRecorded
		t.Message = fmt.Sprintf("by whom worker %d was held at this time is not recorded", w.number)
	default:
		t.Outcome, t.Claims = Claimed, []TracedClaim{{Node: h.node, Time: h.at, Record: h.source == ""}}
		t.Message = fmt.Sprintf("worker %d was held by %s for times from %s on", w.number, h.node, moment(h.from))
	}
}
