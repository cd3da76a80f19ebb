package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/load"
)

// counting gives one ID after the other, each after a while that depends on which it is.
func counting(takes func(id int64) time.Duration) func(context.Context) ([]bus.Range, error) {
	var last atomic.Int64
	return func(context.Context) ([]bus.Range, error) {
		id := last.Add(1)
		time.Sleep(takes(id))
		return []bus.Range{{First: id, Last: id}}, nil
	}
}

// loaded makes a load in virtual time.
func loaded(t *testing.T, l load.Load, get func(context.Context) ([]bus.Range, error)) (r *benchReport) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = runBench(t.Context(), l, get); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestReportOfALoad(t *testing.T) {
	t.Parallel()
	r := loaded(t, load.Load{Callers: 10, Duration: time.Hour, Calls: 1000}, counting(func(id int64) time.Duration {
		if id%100 == 0 {
			return 200 * time.Millisecond
		}
		return 10 * time.Millisecond
	}))
	if l := r.Latency; math.Abs(l["p50"]-10e3) > 100 || l["p90"] != l["p50"] || math.Abs(l["p99.99"]-200e3) > 2000 ||
		l["max"] != l["p99.99"] {
		t.Errorf("latencies %v", l)
	}
	if r.Requests != 1000 || r.IDs != 1000 || r.Repeated != 0 || len(r.Errors) != 0 {
		t.Errorf("the report is %+v", r)
	}
	if at := float64(r.Requests) / r.Seconds; at != r.RequestsPerSecond || at != r.IDsPerSecond {
		t.Errorf("%v and %v a second, want %v", r.RequestsPerSecond, r.IDsPerSecond, at)
	}
}

func TestErrorsOfALoad(t *testing.T) {
	t.Parallel()
	ids := counting(func(int64) time.Duration { return time.Millisecond })
	var asked atomic.Int64
	get := func(ctx context.Context) ([]bus.Range, error) {
		switch asked.Add(1) % 10 {
		case 2: // the first request succeeds
			return nil, &bus.Error{Code: 507, Reason: bus.Exhausted, Message: "no more"}
		case 3:
			return nil, errors.New("something else")
		}
		return ids(ctx)
	}
	r := loaded(t, load.Load{Callers: 7, Duration: time.Hour, Calls: 100}, get)
	want := []failure{{"exhausted", 10, "no more (507 exhausted)"}, {"other", 10, "something else"}}
	if fmt.Sprint(r.Errors) != fmt.Sprint(want) || r.Requests != 80 || r.IDs != 80 {
		t.Errorf("%d requests, %d IDs, errors %v, want %v", r.Requests, r.IDs, r.Errors, want)
	}
}

// IDs that two callers got are known, also when each had kept them for itself.
func TestRepeatedIDsOfALoad(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	r := loaded(t, load.Load{Callers: 5, Duration: time.Hour, Calls: 20_000}, func(context.Context) ([]bus.Range, error) {
		time.Sleep(time.Millisecond)
		id := 3 * asked.Add(1) // apart, so that callers' lists fill up
		if id == 3*9000 {
			id = 3 * 17
		}
		return []bus.Range{{First: id, Last: id + 1}}, nil
	})
	if r.Repeated != 2 || len(r.Repeats) != 1 || r.Repeats[0] != "51-52" {
		t.Errorf("%d repeated, %v", r.Repeated, r.Repeats)
	}
}
