package audit

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/nats-io/nats.go/jetstream"
)

// readWorkers reads the worker events, which workers run, and the registry, and compares them. What contradicts is read
// again, after a while: a release or a takeover may have happened between the readings, or a replica lagged behind.
func (a *auditor) readWorkers(ctx context.Context) error {
	contradict := func(w WorkerAudit) bool { return len(w.Contradictions) > 0 }
	audits, err := a.auditWorkers(ctx)
	if err == nil && slices.ContainsFunc(audits, contradict) {
		if err = a.awaitReplicas(ctx); err == nil {
			audits, err = a.auditWorkers(ctx)
		}
	}
	if err != nil || len(a.Tags) > 0 { // only what was taken is compared with them
		return err
	}
	a.report.Workers = audits
	for _, w := range audits {
		a.report.Contradictions = append(a.report.Contradictions, w.Contradictions...)
	}
	return nil
}

// auditWorkers compares the workers' events with the registry and the running generators.
func (a *auditor) auditWorkers(ctx context.Context) (audits []WorkerAudit, err error) {
	a.workers, a.records = make(map[int64]*workerTrail), make(map[int64]admin.Worker)
	err = readBodies(ctx, a.Source, workerEvents+"*", isWorker, func(_ jetstream.Msg, event events.Event, e events.Worker) {
		e.Node, e.Holder = a.node(e.Node).name, a.node(e.Holder).name
		a.worker(e.Worker).event(event, e)
	})
	if err != nil {
		return nil, err
	}
	running := make(map[int64][]admin.State)
	if a.States != nil {
		states, err := a.States(ctx)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		for _, s := range states {
			if s.Worker != nil {
				running[*s.Worker] = append(running[*s.Worker], s)
				a.worker(*s.Worker)
			}
		}
	}
	for req := (admin.WorkersRequest{}); ; {
		page, err := a.Source.Workers(ctx, req)
		if err != nil {
			return nil, err
		}
		a.layout, a.everyRecord = page.Layout, everyRecord(page)
		for _, w := range page.Workers {
			a.records[w.Worker] = w
			a.worker(w.Worker)
		}
		if req.From = page.Next; page.Next == 0 {
			break
		}
	}
	for _, number := range slices.Sorted(maps.Keys(a.workers)) {
		record := a.records[number]
		record.Worker = number
		a.workers[number].inUnits(a.layout)
		audits = append(audits, WorkerAudit{Worker: record, Contradictions: a.workers[number].audit(record, running[number])})
		a.Progress("workers", uint64(len(audits)), uint64(len(a.workers)))
	}
	return audits, nil
}

// everyRecord reports whether the registry of a page has the records of all workers. With ZooKeeper each data centre
// may have its own.
func everyRecord(page admin.WorkersPage) bool { return page.Registry != "zookeeper" }
