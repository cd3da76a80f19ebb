package audit

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
)

// What contradicts is read again, because a worker may change hands between the readings. Only what still contradicts then is reported.
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
		readings, began := 0, time.Now()
		from := Source{
			JS:     js,
			Claims: func(context.Context, bus.ClaimsRequest) (bus.ClaimsPage, error) { return bus.ClaimsPage{}, nil },
			Workers: func(context.Context, bus.WorkersRequest) (bus.WorkersPage, error) {
				record := recordOf("a", 10, 70)
				if readings < c.rivals {
					record.Rival = "b"
				}
				readings++
				return bus.WorkersPage{Workers: []bus.Worker{record}}, nil
			},
		}
		report, err := Run(t.Context(), from, Options{})
		if err != nil || readings != c.readings || len(report.Contradictions) != c.want || len(report.Workers) != 1 || len(report.Workers[0].Contradictions) != c.want {
			t.Errorf("%s: %+v, %v after %d readings", name, report, err, readings)
		}
		if waited := time.Since(began); c.readings > 1 && waited < replicaLag {
			t.Errorf("%s: the second reading came after %v, so a replica that lags may have answered both", name, waited)
		}
	}
}
