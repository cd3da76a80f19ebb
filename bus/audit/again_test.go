package audit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/snowflake"
)

// A question that a generator cannot answer now is asked again, for a while. Other errors come at once.
func TestQuestionsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			err     error
			fails   int // then it is answered
			asked   int
			after   time.Duration
			succeed bool
		}{
			"starting":         {&bus.Error{Code: 503, Reason: bus.StoreUnavailable}, 3, 4, 3 * askPause, true},
			"for good":         {&bus.Error{Code: 503, Reason: bus.NoWorkerID}, 1000, 41, askAgain, false},
			"a wrong question": {&bus.Error{Code: 400, Reason: bus.BadRequest}, 1000, 1, 0, false},
			"nobody to ask":    {errors.New("no responders"), 1000, 1, 0, false},
		} {
			asked, began := 0, time.Now()
			got, err := repeatedly(func(context.Context, int) (int, error) {
				if asked++; asked <= c.fails {
					return 0, c.err
				}
				return asked, nil
			})(t.Context(), 1)
			if asked != c.asked || time.Since(began) != c.after || (err == nil) != c.succeed || err == nil && got != asked {
				t.Errorf("%s: asked %d times in %v: %d, %v", name, asked, time.Since(began), got, err)
			}
		}
	})
}

// A second reading comes after replicaLag. Else a replica that lags behind may answer both.
func TestReplicasAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := (Source{}).awaitReplicas(t.Context()); err != nil || time.Since(began) != replicaLag {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// late returns a source in which a replica answers first that has only the state before the claims: no tag, no worker.
func (e *evidence) late(records ...admin.Worker) Source {
	from := e.source()
	claims, asked := from.Claims, false
	from.Claims = func(ctx context.Context, req admin.ClaimsRequest) (admin.ClaimsPage, error) {
		page, err := claims(ctx, req)
		for i := range page.Claims {
			if !asked {
				page.Claims[i] = admin.TagClaims{Tag: page.Claims[i].Tag, End: 1, MaxID: 1}
			}
		}
		asked = true
		return page, err
	}
	answered := false
	from.Workers = func(context.Context, admin.WorkersRequest) (admin.WorkersPage, error) {
		page := admin.WorkersPage{Registry: "kv", Layout: snowflake.DefaultLayout()}
		if answered {
			page.Workers = records
		}
		answered = true
		return page, nil
	}
	return from
}

// What seems to be unclaimed by one reading alone is no finding: it may come from a replica that lags behind.
func TestReplicaThatLags(t *testing.T) {
	t.Parallel()
	e := newEvidence(t)
	e.claimed("order", 101, nil)
	now := time.UnixMilli(time.Now().UnixMilli())
	record := admin.Worker{Worker: 5, Node: "a", Acquired: now.Add(-time.Hour), ReservedUntil: now.Add(time.Hour)}
	id := snowflake.DefaultLayout().Compose(snowflake.Parts{UnixMS: now.UnixMilli(), Worker: 5})

	if got, err := TraceTag(t.Context(), e.late(), "order", 100); err != nil || got.Outcome != NotRecorded {
		t.Errorf("a trace of a tag: %+v, %v", got, err)
	}
	d := bus.Decoded{ID: bus.ID(id), UnixMS: now.UnixMilli(), Worker: 5}
	if got, err := TraceSnowflake(t.Context(), e.late(record), d); err != nil || got.Outcome != Claimed {
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

// Workers that contradict are read again, because one may change hands between the readings. Only what still
// contradicts then is reported.
func TestWorkersAreReadAgain(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natskit.Connect(t, natskit.Start(t)))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ rivals, readings, want int }{
		"none":         {0, 1, 0},
		"it was over":  {1, 2, 0},
		"it was wrong": {9, 2, 1},
	} {
		readings := 0
		from := Source{
			JS: js, lag: 1,
			Claims: func(context.Context, admin.ClaimsRequest) (admin.ClaimsPage, error) { return admin.ClaimsPage{}, nil },
			Workers: func(context.Context, admin.WorkersRequest) (admin.WorkersPage, error) {
				record := recordOf("a", 10, 70)
				if readings < c.rivals {
					record.Rival = "b"
				}
				readings++
				return admin.WorkersPage{Workers: []admin.Worker{record}}, nil
			},
		}
		report, err := Run(t.Context(), from, Options{})
		if err != nil || readings != c.readings || len(report.Contradictions) != c.want || len(report.Workers) != 1 {
			t.Errorf("%s: %+v, %v after %d readings", name, report, err, readings)
		}
	}
}
