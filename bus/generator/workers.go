package generator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// restBeforeRelease is how long ago the holder of a worker must have reported last before the
	// worker is released. A holder reports every three seconds.
	restBeforeRelease = 10 * time.Second
	// listTimeout bounds a read of the registry, so that the caller gets an answer before it gives
	// up.
	listTimeout = 3 * time.Second
)

// workerAdmin does what operators ask of workers, and of generators that are lost. Its methods are
// safe for concurrent use. It has no lock, because it remembers nothing.
type workerAdmin struct {
	*base
	flakes   *flakes
	findings *findings
}

func (w *workerAdmin) list(ctx context.Context, req admin.WorkersRequest) (admin.WorkersPage, error) {
	layout := w.cfg.Snowflake.Layout
	page := admin.WorkersPage{Registry: w.cfg.RegistryKind, Layout: admin.Layout(layout), Workers: []admin.Worker{}}
	limit, err := pageLimit(req.Limit)
	if n := layout.Workers(); err == nil && req.From >= n {
		err = badRequest("there is no worker %d: this installation has workers 0 to %d", req.From, n-1)
	}
	if err != nil {
		return page, err
	}
	entries, err := w.entries(ctx)
	if err != nil {
		return page, err
	}
	now := time.Now()
	for _, e := range entries {
		if e.Worker >= req.From {
			page.Workers = append(page.Workers, w.worker(now, e.Record))
		}
	}
	if n := fit(w.cfg.Conn, page.Workers, limit); n < len(page.Workers) {
		page.Next = page.Workers[n].Worker
		page.Workers = page.Workers[:n]
	}
	return page, nil
}

// entries returns the records of the registry.
func (w *workerAdmin) entries(ctx context.Context) ([]snowflake.Entry, error) {
	if why := w.flakes.notJoined(); why != nil { // reading may create the bucket
		return nil, why
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	entries, err := w.cfg.Workers.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the registry: %w", snowflake.ErrNoWorker, err)
	}
	return entries, nil
}

// worker returns a record as users see it.
func (w *workerAdmin) worker(now time.Time, r snowflake.Record) admin.Worker {
	return admin.Worker{
		Worker: r.Worker, Node: r.Node, Running: r.Worker == w.flakes.Worker() || w.group.held(now, r.Worker),
		Acquired: utc(r.Acquired), Reported: utc(r.Reported), ReservedUntil: utc(r.ReservedUntil),
	}
}

// utc returns a time for people. JSON ends with the year 9999, but a record that was written by
// hand may have any time.
func utc(ms int64) time.Time {
	const last = 253_402_300_799_999 // of the year 9999
	return time.UnixMilli(min(max(ms, 0), last)).UTC()
}

// release writes what [snowflake.Release] makes of a record, once, if no sign shows that the holder
// runs.
func (w *workerAdmin) release(ctx context.Context, req admin.WorkerRelease) (admin.Worker, error) {
	none := admin.Worker{}
	if req.Node == "" || req.ReservedUntil.IsZero() {
		return none, badRequest("node or reserved_until is missing: send both as %s lists them",
			admin.SubjectWorkersList)
	}
	entries, err := w.entries(ctx)
	if err != nil {
		return none, err
	}
	i := slices.IndexFunc(entries, func(e snowflake.Entry) bool { return e.Worker == req.Worker })
	if i < 0 {
		return none, badRequest("worker %d has no record that generator %s can read: it is unclaimed, "+
			"or `leaf serve` logs what is wrong with it", req.Worker, w.cfg.Node)
	}
	e, now := entries[i], w.cfg.Snowflake.Clock().Wall
	if err := w.keeps(req, e, now); err != nil {
		return none, err
	}
	if e.ReservedUntil <= now {
		return w.worker(time.Now(), e.Record), nil // it is unclaimed already
	}
	r := snowflake.Release(e, now)
	switch _, err := w.cfg.Workers.Put(ctx, r, e.Version); {
	case errors.Is(err, snowflake.ErrConflict):
		return none, conflict("the record of worker %d was changed at this moment: list the workers again", req.Worker)
	case err != nil:
		return none, unconfirmed(fmt.Errorf("the registry: %w", err),
			fmt.Sprintf("it is not known whether worker %d was released, `leaf workers` shows it", req.Worker))
	}
	w.cfg.Log.Warn("an operator released a worker",
		"worker", r.Worker, "holder", r.Node, "reserved_until", utc(r.ReservedUntil))
	w.findings.publish("worker.released", key(r.Worker), events.Worker{
		Node: w.cfg.Node, Worker: r.Worker, Registry: w.cfg.RegistryKind,
		ReservedUntilMS: r.ReservedUntil, Holder: r.Node})
	return w.worker(time.Now(), r), nil
}

// keeps says why the worker of e may not be released at the time now, in Unix ms; nil: it may, or
// it is unclaimed.
func (w *workerAdmin) keeps(req admin.WorkerRelease, e snowflake.Entry, now int64) error {
	if !w.heartbeats.peersKnown(time.Now()) {
		return fmt.Errorf("%w: it is not known yet which workers the other generators hold", snowflake.ErrNoWorker)
	}
	is := w.worker(time.Now(), e.Record)
	switch {
	case is.Running:
		return conflict("worker %d is held by %s, which is running: stop it first (one that was killed counts as "+
			"running for up to 3 s, and can be released 10 s after its last report)", is.Worker, is.Node)
	case is.Node != req.Node || !is.ReservedUntil.Equal(req.ReservedUntil) ||
		!req.Reported.IsZero() && !is.Reported.Equal(req.Reported):
		return conflict("the record of worker %d has changed: it is held by %s until %s, which last reported at %s; "+
			"list the workers again", is.Worker, is.Node,
			is.ReservedUntil.Format(snowflake.TimeFormat), is.Reported.Format(snowflake.TimeFormat))
	case e.ReservedUntil <= now:
		return nil
	}
	wait := min(restBeforeRelease.Milliseconds()-(now-max(e.Reported, 0)), e.ReservedUntil-now)
	if wait <= 0 {
		return nil
	}
	err := conflict("%s, which holds worker %d, last reported at %s: it may be running, cut off from this NATS "+
		"but not from the registry. If it is stopped, try again at %s",
		is.Node, is.Worker, is.Reported.Format(snowflake.TimeFormat), utc(now+wait).Format(snowflake.TimeFormat))
	err.RetryAfter = time.Duration(wait) * time.Millisecond
	return err
}

// forget makes all generators forget a lost one that is gone for good. One that is heard again is
// known again.
func (w *workerAdmin) forget(_ context.Context, req admin.NodeName) (admin.NodeName, error) {
	runs := func(b heartbeat) bool { return b.Node == req.Node }
	switch {
	case req.Node == w.cfg.Node || slices.ContainsFunc(w.group.present(time.Now()), runs):
		return req, conflict("%s is running: stop it first (one that was killed counts as running for up to %v)", req.Node,
			heartbeatExpires)
	case !w.group.forget(time.Now(), req.Node):
		return req, badRequest("no generator with the name %q is lost: `leaf nodes` shows those that are", req.Node)
	}
	w.cfg.Log.Warn("an operator says that a generator is gone for good", "node", req.Node)
	w.heartbeats.send(heartbeat{Forgotten: req.Node})
	return req, nil
}
