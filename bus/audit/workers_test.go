package audit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/snowflake"
)

// A second reading comes after replicaLag. Else a replica that lags behind may answer both.
func TestReplicasAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := (Source{}).awaitReplicas(t.Context()); err != nil || time.Since(began) != replicaLag {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// workers is a registry that answers each reading with the next of these records, and then with the last one.
func workers(t *testing.T, readings *int, records ...admin.Worker) Source {
	t.Helper()
	js, err := jetstream.New(natskit.Connect(t, natskit.Start(t)))
	if err != nil {
		t.Fatal(err)
	}
	return Source{
		JS: js, lag: 1,
		Records: func(context.Context, string, func(Record)) error { return nil },
		States:  func(context.Context) ([]admin.State, error) { return nil, nil },
		Workers: func(_ context.Context, req admin.WorkersRequest) (admin.WorkersPage, error) {
			page := admin.WorkersPage{Layout: admin.Layout(snowflake.DefaultLayout())}
			if req.From == 0 && req.Limit == 1 { // for the layout
				return page, nil
			}
			if r := records[min(*readings, len(records)-1)]; r.Node != "" {
				page.Workers = append(page.Workers, r)
			}
			*readings++
			return page, nil
		},
	}
}

// Workers that contradict are read again, because one may change hands between the readings. Only what still
// contradicts then is reported.
func TestWorkersAreReadAgain(t *testing.T) {
	t.Parallel()
	good, bad := recordOf("a", 10, 70), recordOf("b", 10, 70)
	for name, c := range map[string]struct {
		records        []admin.Worker
		readings, want int
	}{
		"none":         {[]admin.Worker{good}, 1, 0},
		"it was over":  {[]admin.Worker{bad, good}, 2, 0},
		"it was wrong": {[]admin.Worker{bad}, 2, 1},
	} {
		readings := 0
		source := workers(t, &readings, c.records...)
		running := runs("a", 20, 70)
		running.Worker = &good.Worker
		source.States = func(context.Context) ([]admin.State, error) { return []admin.State{running}, nil }
		report, err := Run(t.Context(), source, Options{})
		if err != nil || readings != c.readings || len(report.Contradictions) != c.want || len(report.Workers) != 1 {
			t.Errorf("%s: %+v, %v after %d readings", name, report, err, readings)
		}
	}
}

// A snowflake that seems to be impossible by one reading alone may come from a replica that lags behind.
func TestTraceSnowflake(t *testing.T) {
	t.Parallel()
	record := recordOf("a", 10, 70)
	id := bus.ID(snowflake.DefaultLayout().Compose(snowflake.Parts{UnixMS: ms(20), Worker: 5}))
	readings := 0
	got, err := TraceSnowflake(t.Context(), workers(t, &readings, admin.Worker{}, record), id)
	if err != nil || got.Outcome != Claimed || readings != 2 || got.Decoded.Worker != 5 || got.Decoded.UnixMS != ms(20) {
		t.Errorf("%+v, %v after %d readings", got, err, readings)
	}
	got, err = TraceSnowflake(t.Context(), workers(t, &readings, admin.Worker{}), id)
	if err != nil || got.Outcome != Impossible {
		t.Errorf("%+v, %v", got, err)
	}
}
