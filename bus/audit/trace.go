package audit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
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
		// Order is that of the tag, as in [admin.TagClaims].
		Order string `json:"order,omitempty"`
		// Number is that of the ID of an opaque tag. Claims and End are of numbers.
		Number bus.ID `json:"number,omitempty"`
		// Claims are those of the ID. More than one is a contradiction.
		Claims []TracedClaim `json:"claims"`
		// Since is from when on the stream has events of this tag or worker; zero: it has none.
		Since time.Time `json:"since,omitzero"`
		// End is above all IDs of the tag that were claimed.
		End bus.ID `json:"end,omitempty"`
		// Decoded are the parts of a snowflake, and ReservedUntil the end of what its worker has claimed.
		Decoded       *bus.Decoded `json:"decoded,omitempty"`
		ReservedUntil time.Time    `json:"reserved_until,omitzero"`
	}
	// TracedClaim is the claim of a range of a tag, or of a stretch of time of a worker.
	TracedClaim struct {
		Node string    `json:"node"`
		Time time.Time `json:"time"`
		// First to Last is the range; 0 for a worker.
		First bus.ID          `json:"first,omitempty"`
		Last  bus.ID          `json:"last,omitempty"`
		Cause allocator.Cause `json:"cause,omitempty"` // empty: not recorded
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
	// NotRecorded: it is older than the events in the stream. It is claimed; by whom is no longer recorded. Or it is
	// below the last claim of a strict tag: older ones are not recorded, so it may also have been skipped.
	NotRecorded TraceOutcome = "not_recorded"
	// Gap: it lies below IDs that are claimed, and no event reports it, though the stream has older ones. It was lost or
	// skipped, or its event was lost.
	Gap TraceOutcome = "gap"
	// Impossible: no generator can have issued this snowflake.
	Impossible TraceOutcome = "impossible"
)

// TraceTag returns who claimed an ID of a tag. It takes a second longer for an ID that nobody has claimed.
func TraceTag(ctx context.Context, from Source, tag string, id int64) (Trace, error) {
	return from.twice(ctx, func() (Trace, error) { return traceTag(ctx, from, tag, id) })
}

// twice traces again, after a while, an ID that seems to be unclaimed: a replica may have answered that lags behind.
func (s Source) twice(ctx context.Context, trace func() (Trace, error)) (Trace, error) {
	t, err := trace()
	if err != nil || t.Outcome != NotClaimed && t.Outcome != Impossible {
		return t, err
	}
	if err := s.awaitReplicas(ctx); err != nil {
		return t, err
	}
	return trace()
}

func traceTag(ctx context.Context, from Source, tag string, id int64) (Trace, error) {
	t := Trace{Tag: tag, ID: bus.ID(id), Claims: []TracedClaim{}}
	kind, err := from.Claims(ctx, admin.ClaimsRequest{Tags: []string{tag}})
	if err != nil {
		return t, err
	}
	if kind.Claims[0].Opaque != "" {
		revealed, err := from.Reveal(ctx, admin.RevealRequest{Tag: tag, IDs: []bus.ID{t.ID}})
		if err != nil {
			return t, err
		}
		t.Number = revealed.Numbers[0]
		id = int64(t.Number) // all claims are of numbers
	}
	lowest := int64(0)
	err = readBodies(ctx, from, refillEvents+tag, isRefill, func(_ jetstream.Msg, event events.Event, e events.Refill) {
		if t.Since.IsZero() {
			t.Since, lowest = event.Time, e.First
		}
		lowest = min(lowest, e.First)
		claim := TracedClaim{Node: e.Node, Time: event.Time, First: bus.ID(e.First), Last: bus.ID(e.Last), Cause: e.Cause}
		if e.First <= id && id <= e.Last && len(t.Claims) < mostContradictions && !repeats(t.Claims, claim) {
			t.Claims = append(t.Claims, claim)
		}
	})
	if err != nil {
		return t, err
	}
	page, err := from.Claims(ctx, admin.ClaimsRequest{Tags: []string{tag}})
	if err != nil {
		return t, err
	}
	c := page.Claims[0]
	t.End, t.Order = c.End, c.Order
	if l := c.Last; l != nil && l.First <= id && id <= l.Last {
		claim := TracedClaim{Node: l.Node, Time: l.Time, First: bus.ID(l.First), Last: bus.ID(l.Last), Record: true}
		if !repeats(t.Claims, claim) {
			t.Claims = append(t.Claims, claim)
		}
	}
	switch {
	case c.Problem == "" && c.End == 0 && c.MaxID == 0 && t.Since.IsZero():
		return t, fmt.Errorf("%s: %w", tag, allocator.ErrUnknownTag)
	case len(t.Claims) > 1:
		t.Outcome, t.Message = Claimed, fmt.Sprintf("claimed %d times, which must not be: `leaf audit %s` says more", len(t.Claims), tag)
	case len(t.Claims) == 1:
		t.Outcome, t.Message = Claimed, describe(t.Claims[0], c.Order)
		switch {
		case c.Problem != "" || id < int64(c.End):
		case c.End == 0:
			t.Message += fmt.Sprintf("; but the tag has no record: `leaf audit %s` says more", tag)
		default:
			t.Message += fmt.Sprintf("; but by its record all claims end below %d: `leaf audit %s` says more", c.End, tag)
		}
	case c.Problem != "":
		return t, fmt.Errorf("the record of %s cannot be read: %s", tag, c.Problem)
	case id >= int64(c.End):
		t.Outcome, t.Message = NotClaimed, fmt.Sprintf("not claimed yet: %s is claimed below %d", tag, max(c.End, 1))
	case c.Order == bus.OrderStrict:
		t.Outcome, t.Message = NotRecorded, "below the end of all claims. "+
			"Claims of a strict tag are not kept one by one: only the last one is recorded, and this ID is not in it"
	case t.Since.IsZero() || id < lowest:
		t.Outcome, t.Message = NotRecorded, "older than the stream: claimed; by whom is no longer recorded"
	default:
		t.Outcome, t.Message = Gap, "below the end of all claims, but no event reports it: "+
			"it was lost as a gap, an operator skipped it, or its event was lost"
	}
	return t, nil
}

// repeats reports whether the claims have this one: an event may be in the stream twice.
func repeats(claims []TracedClaim, c TracedClaim) bool {
	return slices.ContainsFunc(claims, func(o TracedClaim) bool {
		return o.Node == c.Node && o.First == c.First && o.Last == c.Last && (c.Record || o.Time.Equal(c.Time))
	})
}

// describe is a claim of a range of a tag of this order, for people.
func describe(c TracedClaim, order string) string {
	cause := "its cause is no longer recorded: only the tag's record has this claim"
	switch {
	case !c.Record:
		cause = "cause " + string(c.Cause)
	case order == bus.OrderStrict:
		cause = "the last claim of this strict tag"
	}
	return fmt.Sprintf("claimed by %s at %s in %d to %d, %s", c.Node, c.Time.Format(time.RFC3339Nano), c.First, c.Last, cause)
}

// TraceSnowflake returns which generator held the worker of a snowflake at its time. d are the parts of the snowflake.
// It takes a second longer for an ID that cannot have been issued.
func TraceSnowflake(ctx context.Context, from Source, d bus.Decoded) (Trace, error) {
	return from.twice(ctx, func() (Trace, error) { return traceSnowflake(ctx, from, d) })
}

func traceSnowflake(ctx context.Context, from Source, d bus.Decoded) (Trace, error) {
	t := Trace{ID: d.ID, Decoded: &d, Claims: []TracedClaim{}}
	trail := workerTrail{number: d.Worker}
	err := readBodies(ctx, from, workerEvents+fmt.Sprint(d.Worker), isWorker, func(_ jetstream.Msg, event events.Event, e events.Worker) {
		if t.Since.IsZero() {
			t.Since = event.Time
		}
		trail.event(event, e)
	})
	if err != nil {
		return t, err
	}
	page, err := from.Workers(ctx, admin.WorkersRequest{From: d.Worker, Limit: 1})
	if err != nil {
		return t, err
	}
	var record admin.Worker // its Node is empty if there is none
	if len(page.Workers) > 0 && page.Workers[0].Worker == d.Worker {
		record = page.Workers[0]
		t.ReservedUntil = record.ReservedUntil
	}
	trail.inUnits(page.Layout)
	trail.trace(&t, record, everyRecord(page), d.UnixMS)
	return t, nil
}

// trace says in t who may have issued IDs of the worker with the time ms. everywhere: the registry has the records of
// all workers.
func (w *workerTrail) trace(t *Trace, record admin.Worker, everywhere bool, ms int64) {
	var taken time.Time
	for _, h := range w.holders(record) {
		if ms < h.from || ms >= h.until {
			continue
		}
		c := TracedClaim{Node: h.node, Time: h.at, Record: h.source == ""}
		t.Claims = slices.DeleteFunc(t.Claims, func(o TracedClaim) bool { return o.Node == c.Node }) // it was started again
		t.Claims, taken = append(t.Claims, c), h.at
	}
	possible := !slices.ContainsFunc(w.gaps(record, everywhere), func(r bus.Range) bool { return r.First <= ms && ms <= r.Last })
	t.Outcome = Impossible
	switch until := record.ReservedUntil.UnixMilli(); {
	case len(t.Claims) > 1:
		t.Outcome, t.Message = Claimed, fmt.Sprintf("%d generators held worker %d at this time, which must not be: `leaf audit` says more", len(t.Claims), w.number)
	case len(t.Claims) == 1:
		t.Outcome, t.Message = Claimed, fmt.Sprintf("worker %d was held by %s at this time, since %s", w.number, t.Claims[0].Node, moment(taken.UnixMilli()))
		if ms < taken.UnixMilli()-issueLag-w.within {
			t.Message = fmt.Sprintf("claimed by %s, which took worker %d later than this time, at %s: it can have issued this only if its clock was set back since",
				t.Claims[0].Node, w.number, moment(taken.UnixMilli()))
		}
	case possible && record.Node == "" && len(w.tenures) == 0:
		t.Outcome, t.Message = NotRecorded, fmt.Sprintf(
			"no event names worker %d, and the ZooKeeper of the generator that answers has no record of it: another data centre may have one", w.number)
	case possible:
		t.Outcome, t.Message = NotRecorded, "by whom worker "+fmt.Sprint(w.number)+" was held at this time is not recorded: "+
			"the stream has no such old events, or they were lost"
	case record.Node == "" && len(w.tenures) == 0:
		t.Message = fmt.Sprintf("cannot have been issued: worker %d was never claimed", w.number)
	case record.Node != "" && ms >= until:
		t.Message = "cannot have been issued: this worker's time is claimed only up to " + moment(until)
	default:
		t.Message = fmt.Sprintf("cannot have been issued: no generator held worker %d at this time", w.number)
	}
}
