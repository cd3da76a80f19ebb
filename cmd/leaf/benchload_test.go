package main

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/load"
)

// A load reports each kind of error, and the IDs that two callers got, also when each had kept them for itself.
func TestReportOfALoad(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	get := func(context.Context) ([]bus.Range, error) {
		time.Sleep(time.Millisecond)
		n := asked.Add(1)
		switch n % 100 {
		case 2: // the first request succeeds
			return nil, &bus.Error{Code: 507, Reason: bus.Exhausted, Message: "no more"}
		case 3:
			return nil, errors.New("something else")
		}
		if n == 9000 {
			n = 17
		}
		return []bus.Range{{First: 3 * n, Last: 3*n + 1}}, nil // apart, so that callers' lists fill up
	}
	synctest.Test(t, func(t *testing.T) {
		r, err := runBench(t.Context(), load.Load{Callers: 5, Duration: time.Hour, Calls: 20_000}, get)
		if err != nil {
			t.Fatal(err)
		}
		want := []failure{{"exhausted", 200, "no more (507 exhausted)"}, {"other", 200, "something else"}}
		if !slices.Equal(r.Errors, want) || r.Requests != 19_600 || r.IDs != 2*19_600 {
			t.Errorf("%d requests, %d IDs, errors %v, want %v", r.Requests, r.IDs, r.Errors, want)
		}
		if r.Repeated != 2 || len(r.Repeats) != 1 || r.Repeats[0] != "51-52" {
			t.Errorf("%d repeated, %v", r.Repeated, r.Repeats)
		}
	})
}
