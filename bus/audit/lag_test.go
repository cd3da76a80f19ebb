package audit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/snowflake"
)

// late returns a source in which a replica answers first that has only the state before the claims: no tag, no worker.
func (e *evidence) late(records ...bus.Worker) Source {
	from := e.source()
	claims, asked := from.Claims, false
	from.Claims = func(ctx context.Context, req bus.ClaimsRequest) (bus.ClaimsPage, error) {
		page, err := claims(ctx, req)
		for i := range page.Claims {
			if !asked {
				page.Claims[i] = bus.TagClaims{Tag: page.Claims[i].Tag, End: 1, MaxID: 1}
			}
		}
		asked = true
		return page, err
	}
	answered := false
	from.Workers = func(context.Context, bus.WorkersRequest) (bus.WorkersPage, error) {
		page := bus.WorkersPage{Registry: "kv", Layout: snowflake.DefaultLayout()}
		if answered {
			page.Workers = records
		}
		answered = true
		return page, nil
	}
	from.States = nil
	return from
}

// What seems to be unclaimed by one reading alone is no finding: it may come from a replica that lags behind.
func TestReplicaThatLags(t *testing.T) {
	t.Parallel()
	e := newEvidence(t)
	e.claimed("order", 101, nil)
	now := time.UnixMilli(time.Now().UnixMilli())
	record := bus.Worker{Worker: 5, Node: "a", Acquired: now.Add(-time.Hour), ReservedUntil: now.Add(time.Hour)}
	id := snowflake.DefaultLayout().Compose(snowflake.Parts{UnixMS: now.UnixMilli(), Worker: 5})

	if got, err := TraceTag(t.Context(), e.late(), "order", 100); err != nil || got.Outcome != bus.NotRecorded {
		t.Errorf("a trace of a tag: %+v, %v", got, err)
	}
	d := bus.Decoded{ID: bus.ID(id), UnixMS: now.UnixMilli(), Worker: 5}
	if got, err := TraceSnowflake(t.Context(), e.late(record), d); err != nil || got.Outcome != bus.Claimed {
		t.Errorf("a trace of a snowflake: %+v, %v", got, err)
	}
	o := Options{Taken: &Taken{}, TakenSnowflakes: &Runs{}}
	o.Taken.Add("order", bus.Range{First: 1, Last: 100})
	o.TakenSnowflakes.Add(bus.Range{First: id, Last: id})
	r, err := Run(t.Context(), e.late(record), o)
	if err != nil || len(r.Contradictions) > 0 || r.TakenSnowflakes.IDs != 1 || r.Taken.IDs != 100 {
		t.Errorf("an audit of what was taken: %+v, %v", r, err)
	}
	o.Taken.Add("order", bus.Range{First: 101, Last: 101})
	o.TakenSnowflakes.Add(bus.Range{First: id + 4096, Last: id + 4096}) // of worker 6
	r, err = Run(t.Context(), e.late(record), o)
	if err != nil || len(r.Contradictions) != 2 || r.Taken.Unclaimed != 1 || r.TakenSnowflakes.Unclaimed != 1 {
		t.Errorf("an audit of what was never claimed: %+v, %v", r, err)
	}
}

// No generator has such a name. A table with it would be as wide.
func TestEndlessNodeName(t *testing.T) {
	t.Parallel()
	e := newEvidence(t)
	e.claimed("order", 101, nil)
	e.refill("order", strings.Repeat("n", mostNode), 1, 10, 1)
	e.refill("order", strings.Repeat("N", 100_000), 11, 20, 2)
	r := e.audit(nil, "order")
	if got := kinds(r.Contradictions, "order"); got != "[damaged_event]" || r.Events != 1 || len(r.Contradictions[0].Message) > 1000 {
		t.Errorf("%s, %d events", got, r.Events)
	}
}
