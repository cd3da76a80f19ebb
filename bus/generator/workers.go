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
	// listTimeout bounds a read of the registry, so that the caller gets an answer before it gives up.
	listTimeout = 3 * time.Second
)

func (g *Generator) workersList(ctx context.Context, req admin.WorkersRequest) (admin.WorkersPage, error) {
	limit, err := pageLimit(req.Limit)
	if err != nil {
		return admin.WorkersPage{}, err
	}
	if n := g.cfg.Snowflake.Layout.Workers(); req.From >= n {
		return admin.WorkersPage{}, badRequest("there is no worker %d: this installation has workers 0 to %d", req.From, n-1)
	}
	entries, err := g.workers(ctx)
	if err != nil {
		return admin.WorkersPage{}, err
	}
	page := admin.WorkersPage{Registry: g.cfg.RegistryKind, Layout: g.cfg.Snowflake.Layout, Workers: []admin.Worker{}}
	now := time.Now()
	for _, e := range entries {
		if e.Worker >= req.From {
			w := g.worker(now, e.Record)
			w.Rival = e.Rival
			page.Workers = append(page.Workers, w)
		}
	}
	if n := fit(g, page.Workers, limit); n < len(page.Workers) {
		page.Next = page.Workers[n].Worker
		page.Workers = page.Workers[:n]
	}
	return page, nil
}

// workers returns the records of the registry.
func (g *Generator) workers(ctx context.Context) ([]snowflake.Entry, error) {
	if why := g.notJoined(); why != nil { // reading may create the bucket
		return nil, why
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	entries, err := g.cfg.Workers.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the registry: %w", snowflake.ErrNoWorker, err)
	}
	return entries, nil
}

// worker returns a record as users see it.
func (g *Generator) worker(now time.Time, r snowflake.Record) admin.Worker {
	return admin.Worker{
		Worker: r.Worker, Node: r.Node, Running: r.Worker == g.flakes.Worker() || g.group.held(now, r.Worker),
		Acquired: utc(r.Acquired), Reported: utc(r.Reported), ReservedUntil: utc(r.ReservedUntil),
	}
}

// utc returns a time for people. JSON ends with the year 9999, but a record that was written by hand
// may have any time.
func utc(ms int64) time.Time {
	const last = 253_402_300_799_999 // of the year 9999
	return time.UnixMilli(min(max(ms, 0), last)).UTC()
}

// workersRelease writes what [snowflake.Release] makes of a record, once, if
// no sign shows that the holder runs.
func (g *Generator) workersRelease(ctx context.Context, req admin.WorkerRelease) (admin.Worker, error) {
	if req.Node == "" || req.ReservedUntil.IsZero() {
		return admin.Worker{}, badRequest("node or reserved_until is missing: send both as %s lists them", admin.SubjectWorkersList)
	}
	entries, err := g.workers(ctx)
	if err != nil {
		return admin.Worker{}, err
	}
	i := slices.IndexFunc(entries, func(e snowflake.Entry) bool { return e.Worker == req.Worker })
	if i < 0 {
		elsewhere := ""
		if g.cfg.RegistryKind == "zookeeper" {
			elsewhere = ", or it is in the ZooKeeper of another data centre: ask again, until one of its generators answers"
		}
		return admin.Worker{}, badRequest("worker %d has no record that generator %s can read: it is unclaimed, "+
			"or `leaf serve` logs what is wrong with it%s", req.Worker, g.cfg.Node, elsewhere)
	}
	e, now := entries[i], g.cfg.Snowflake.Clock().Wall
	if err := g.keepsWorker(req, e, now); err != nil {
		return admin.Worker{}, err
	}
	if e.ReservedUntil <= now {
		return g.worker(time.Now(), e.Record), nil // it is unclaimed already
	}
	r := snowflake.Release(e, now)
	switch _, err := g.cfg.Workers.Put(ctx, r, e.Version); {
	case errors.Is(err, snowflake.ErrConflict):
		return admin.Worker{}, conflict("the record of worker %d was changed at this moment: list the workers again", req.Worker)
	case err != nil:
		return admin.Worker{}, unconfirmed(fmt.Errorf("the registry: %w", err),
			fmt.Sprintf("it is not known whether worker %d was released, `leaf workers` shows it", req.Worker))
	}
	g.log.Warn("an operator released a worker", "worker", r.Worker, "holder", r.Node, "reserved_until", utc(r.ReservedUntil))
	event := events.Worker{Node: g.cfg.Node, Worker: r.Worker, Registry: g.cfg.RegistryKind, ReservedUntilMS: r.ReservedUntil, Holder: r.Node}
	g.publishEvent("worker.released", key(r.Worker), event)
	g.group.losses.release(time.Now(), r.Worker)
	g.send(heartbeat{Released: &r.Worker})
	return g.worker(time.Now(), r), nil
}

// keepsWorker says why the worker of e may not be released at the time now, in
// Unix ms; nil: it may, or it is unclaimed.
func (g *Generator) keepsWorker(req admin.WorkerRelease, e snowflake.Entry, now int64) error {
	if !g.peersKnown(time.Now()) {
		return fmt.Errorf("%w: it is not known yet which workers the other generators hold", snowflake.ErrNoWorker)
	}
	w := g.worker(time.Now(), e.Record)
	switch {
	case w.Running:
		return conflict("worker %d is held by %s, which is running: stop it first (one that was killed counts as running "+
			"for up to 3 s, and can be released 10 s after its last report)", w.Worker, w.Node)
	case w.Node != req.Node || !w.ReservedUntil.Equal(req.ReservedUntil) || !req.Reported.IsZero() && !w.Reported.Equal(req.Reported):
		return conflict("the record of worker %d has changed: it is held by %s until %s, which last reported at %s; list the workers again",
			w.Worker, w.Node, w.ReservedUntil.Format(snowflake.TimeFormat), w.Reported.Format(snowflake.TimeFormat))
	case e.ReservedUntil <= now:
		return nil
	}
	wait := min(restBeforeRelease.Milliseconds()-(now-max(e.Reported, 0)), e.ReservedUntil-now)
	if wait <= 0 {
		return nil
	}
	err := conflict("%s, which holds worker %d, last reported at %s: it may be running, cut off from this NATS but not from the registry. "+
		"If it is stopped, try again at %s",
		w.Node, w.Worker, w.Reported.Format(snowflake.TimeFormat), utc(now+wait).Format(snowflake.TimeFormat))
	err.RetryAfter = time.Duration(wait) * time.Millisecond
	return err
}
