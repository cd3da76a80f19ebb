package audit

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/stream"
	"github.com/leafbus/leafbus/internal/wire"
)

// replicaLag is how long an audit waits before it reads again what contradicts.
const replicaLag = time.Second

// readWorkerEvents reads the events of a worker, or of all workers if worker is "*". problems are
// the events that cannot be read.
func readWorkerEvents(
	ctx context.Context, js jetstream.JetStream, worker string,
) (trails map[int64]*workerTrail, problems []Contradiction, err error) {
	trails = make(map[int64]*workerTrail)
	read := func(msg jetstream.Msg, message, _ uint64) {
		event, err := events.Parse(msg.Subject(), msg.Headers(), msg.Data())
		e, ok := event.Body.(events.Worker)
		if ok && (strconv.FormatInt(e.Worker, 10) != event.Key || max(len(e.Node), len(e.Holder)) > mostNode) {
			err = errors.New("it is no event of this worker")
		}
		switch {
		case err != nil:
			problems = append(problems, damaged("", message, err))
		case ok:
			trailOf(trails, e.Worker).event(event, e)
		}
	}
	err = stream.Read(ctx, js, events.Stream, wire.SubjectEvents+".*.worker.*."+worker, jetstream.DeliverAllPolicy, read)
	return trails, problems[:min(len(problems), mostContradictions)], err
}

func trailOf(trails map[int64]*workerTrail, worker int64) *workerTrail {
	if trails[worker] == nil {
		trails[worker] = &workerTrail{number: worker}
	}
	return trails[worker]
}

// readWorkers reads the worker events, which workers run, and the registry, and compares them. What
// contradicts is read again, after a while: a release or a takeover may have happened between the
// readings, or a replica lagged behind.
func (a *auditor) readWorkers(ctx context.Context) error {
	found, err := a.auditWorkers(ctx)
	if err == nil && len(found.Contradictions) > 0 {
		if err = a.awaitReplicas(ctx); err == nil {
			found, err = a.auditWorkers(ctx)
		}
	}
	a.report.Workers = found.Workers
	a.report.Contradictions = append(a.report.Contradictions, found.Contradictions...)
	a.report.Events += found.Events
	return err
}

// auditWorkers compares the workers' events with the registry and the running generators.
func (a *auditor) auditWorkers(ctx context.Context) (found Report, err error) {
	trails, problems, err := readWorkerEvents(ctx, a.JS, "*")
	if err != nil {
		return found, err
	}
	found.Contradictions = problems
	states, err := a.States(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return found, err
	}
	running, records := make(map[int64][]admin.State), make(map[int64]admin.Worker)
	for _, s := range states {
		if s.Worker != nil {
			trailOf(trails, *s.Worker)
			running[*s.Worker] = append(running[*s.Worker], s)
		}
	}
	for req := (admin.WorkersRequest{}); ; {
		page, err := a.Source.Workers(ctx, req)
		if err != nil {
			return found, err
		}
		for _, w := range page.Workers {
			trailOf(trails, w.Worker)
			records[w.Worker] = w
		}
		if req.From = page.Next; page.Next == 0 {
			break
		}
	}
	for _, number := range slices.Sorted(maps.Keys(trails)) {
		record := records[number]
		record.Worker = number
		found.Workers = append(found.Workers, record)
		found.Contradictions = append(found.Contradictions, trails[number].audit(record, running[number])...)
		found.Events += trails[number].events
	}
	return found, nil
}

// awaitReplicas waits until a replica that lagged behind has the present records.
func (s Source) awaitReplicas(ctx context.Context) error {
	select {
	case <-time.After(cmp.Or(s.lag, replicaLag)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
