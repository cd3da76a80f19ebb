package generator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
)

func release(w admin.Worker) admin.WorkerRelease {
	return admin.WorkerRelease{Worker: w.Worker, Node: w.Node, ReservedUntil: w.ReservedUntil, Reported: w.Reported}
}

// refused asks for a release that must be refused and change nothing.
func (r *releasing) refused(req admin.WorkerRelease, reason bus.Reason, says string) *bus.Error {
	r.t.Helper()
	before := r.records.Snapshot()[req.Worker].Incarnation
	w, err := r.client.ReleaseWorker(r.t.Context(), req)
	e, ok := errors.AsType[*bus.Error](err)
	if !ok || e.Reason != reason || !strings.Contains(e.Message, says) {
		r.t.Fatalf("%+v: %+v, %v; want %s and %q", req, w, err, reason, says)
	}
	if after := r.records.Snapshot()[req.Worker].Incarnation; after != before {
		r.t.Errorf("%+v: refused with %v, but the incarnation was %q and is %q", req, err, before, after)
	}
	return e
}

// A worker is released when its holder is silent, as it was looked at. Who takes it
// then begins where the holder can not have been, and the holder comes back with another.
func TestReleaseWorker(t *testing.T) {
	t.Parallel()
	r := newReleasing(t)
	r.start("calm", r.records, nil, 1, 1)
	disk := r.killed("dead", 0)
	w := r.listed(0)
	killed := r.records.Snapshot()[0]
	if w.Node != "dead" || w.ReservedUntil.UnixMilli() != killed.ReservedUntil || w.Reported.UnixMilli() != killed.Reported {
		t.Fatalf("%+v, want %+v", w, killed)
	}

	// No generator releases the worker of one that runs.
	other := r.start("other", r.records, nil, 2, 2)
	row := 0
	testkit.Eventually(t, "each has heard which worker the other holds", func() bool { // each of the two may answer
		page, err := r.client.Workers(t.Context(), admin.WorkersRequest{From: 1})
		if err != nil {
			t.Fatal(err)
		}
		if row++; len(page.Workers) != 2 || !page.Workers[0].Running || !page.Workers[1].Running {
			row = 0
		}
		return row == 20
	})
	for worker, node := range map[int64]string{1: "calm", 2: "other"} {
		e := r.records.Snapshot()[worker]
		held := admin.WorkerRelease{Worker: worker, Node: node, ReservedUntil: time.UnixMilli(e.ReservedUntil)}
		for range 10 {
			r.refused(held, bus.Conflict, "which is running")
		}
	}
	if err := other.stop(); err != nil {
		t.Fatal(err)
	}

	// Nor one that may be running.
	silent := 10*time.Second - time.Duration(r.c.now()-killed.Reported)*time.Millisecond
	again := time.UnixMilli(killed.Reported + 10_000).UTC().Format(snowflake.TimeFormat)
	if e := r.refused(release(w), bus.Conflict, "try again at "+again); e.Code != 409 || e.RetryAfter != silent {
		t.Errorf("%+v, want it after %v", e, silent)
	}
	r.c.pass(silent - time.Millisecond)
	if e := r.refused(release(w), bus.Conflict, "cut off from this NATS"); e.RetryAfter != time.Millisecond {
		t.Errorf("%+v, want it after a millisecond", e)
	}
	r.c.pass(time.Millisecond)

	// Nor another record than the one that was looked at.
	for _, c := range []struct {
		change func(*admin.WorkerRelease)
		reason bus.Reason
		says   string
	}{
		{func(req *admin.WorkerRelease) { req.Worker = 7 }, bus.BadRequest, "worker 7 has no record"},
		{func(req *admin.WorkerRelease) { req.Node = "" }, bus.BadRequest, "node"},
		{func(req *admin.WorkerRelease) { req.ReservedUntil = time.Time{} }, bus.BadRequest, "reserved_until"},
		{func(req *admin.WorkerRelease) { req.Node = "deaf" }, bus.Conflict, "has changed: it is held by dead"},
		{func(req *admin.WorkerRelease) { req.ReservedUntil = req.ReservedUntil.Add(1) }, bus.Conflict, "has changed"},
		{func(req *admin.WorkerRelease) { req.Reported = req.Reported.Add(-time.Millisecond) }, bus.Conflict, "has changed"},
	} {
		req := release(w)
		c.change(&req)
		r.refused(req, c.reason, c.says)
	}

	stream := eventsOn(t, r.nc)
	got, err := r.client.ReleaseWorker(t.Context(), release(w))
	want := w
	want.ReservedUntil = time.UnixMilli(r.c.now() + 10_000).UTC()
	if err != nil || got != want {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	free := r.records.Snapshot()[0]
	if free.Incarnation == killed.Incarnation || free.Node != "dead" || free.ReservedUntil != want.ReservedUntil.UnixMilli() ||
		free.Acquired != killed.Acquired || free.Reported != killed.Reported {
		t.Errorf("the record was %+v and is %+v", killed, free)
	}
	wantEvent(t, stream, "info", "leaf.worker.released", "0",
		fmt.Sprintf(`{"node":"calm","worker":0,"registry":"memory","reserved_until_ms":%d,"holder":"dead"}`, free.ReservedUntil))
	r.refused(release(w), bus.Conflict, "has changed") // it is not as it was looked at any more

	// Until then no generator can take it, and then any can.
	registry := newRegistry(r.records)
	r.start("fresh", registry, nil, 0, 0)
	r.c.pass(10*time.Second - time.Millisecond)
	calls := registry.calls.Load()
	testkit.Eventually(t, "it has tried to take the worker", func() bool { return registry.calls.Load() > calls+1 })
	if now := r.records.Snapshot()[0]; now != free {
		t.Fatalf("it was taken a millisecond early: %+v", now)
	}
	if first := r.from(0); first.UnixMS < free.ReservedUntil {
		t.Errorf("the first ID is of %d, the holder had until %d", first.UnixMS, free.ReservedUntil)
	}
	if e := r.records.Snapshot()[0]; e.Node != "fresh" {
		t.Errorf("it is held by %+v", e)
	}

	// The former holder finds that it is another's.
	r.start("dead", r.records, newFile(t, disk), 0, 100)
	worker := int64(-1)
	for _, e := range r.records.Snapshot() {
		if e.Node == "dead" {
			worker = e.Worker
		}
	}
	if worker < 3 { // 2 is reserved
		t.Fatalf("it came back with worker %d: %v", worker, r.records.Snapshot())
	}
	r.from(worker)
	r.from(0)
	r.from(1)
	wantLost(t, stream, "dead", 0, killed.ReservedUntil)
}
