package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/snowflake"
)

// checkSnowflakes compares the snowflakes that were taken with what is known of their workers. If some seem to be
// unclaimed, it reads that again, after a while: a replica may have answered that lags behind.
func (a *auditor) checkSnowflakes(ctx context.Context) error {
	before := len(a.report.Contradictions)
	if err := a.compareSnowflakes(ctx); err != nil || a.report.TakenSnowflakes.Unclaimed == 0 {
		return err
	}
	if err := a.awaitReplicas(ctx); err != nil {
		return err
	}
	if _, err := a.auditWorkers(ctx); err != nil {
		return err
	}
	a.report.Contradictions = a.report.Contradictions[:before]
	return a.compareSnowflakes(ctx)
}

// compareSnowflakes compares the snowflakes that were taken with what is known of their workers. It stops comparing
// after mostContradictions, so that a file with absurd ranges does not keep it busy for ever.
func (a *auditor) compareSnowflakes(ctx context.Context) error {
	if a.layout == (snowflake.Layout{}) {
		return errors.New("the generator that answered does not say what the bits of a snowflake mean: update it")
	}
	report := &TakenReport{}
	a.report.TakenSnowflakes = report
	var found []Contradiction
	known := make(map[int64]*workerTimes)
	for _, run := range a.TakenSnowflakes.Finish() {
		report.IDs += run.Len()
		for part := range parts(a.layout, run) {
			if err := ctx.Err(); err != nil {
				return err
			}
			times := known[part.worker]
			if times == nil {
				times = a.worker(part.worker).times(a.records[part.worker], a.everyRecord)
				known[part.worker] = times
			}
			open := without([]bus.Range{part.times}, times.held)
			unknown := without(open, times.gaps)
			for _, r := range without(open, unknown) {
				ids := part.ids(a.layout, run, r)
				report.Unclaimed += ids.count
				if ids.count > 0 && len(found) < mostContradictions {
					found = append(found, Contradiction{Kind: TakenUnclaimed, Worker: &part.worker, First: bus.ID(ids.first), Last: bus.ID(ids.last),
						Message: fmt.Sprintf("%d-%d was taken, but no generator claimed worker %d from %s to %s",
							ids.first, ids.last, part.worker, moment(r.First), moment(r.Last))})
				}
			}
			for _, r := range unknown {
				report.Unreported += part.ids(a.layout, run, r).count
			}
		}
		if len(found) >= mostContradictions {
			break
		}
	}
	repeated, some := a.TakenSnowflakes.Repeated()
	report.Repeated = repeated
	for _, r := range some {
		found = append(found, Contradiction{Kind: TakenTwice, First: bus.ID(r.First), Last: bus.ID(r.Last), Message: fmt.Sprintf("%v was taken twice", r)})
	}
	a.report.Contradictions = append(a.report.Contradictions, found...)
	return nil
}

// workerTimes are times of a worker, in Unix ms, each list sorted and its ranges apart.
type workerTimes struct {
	held []bus.Range // by somebody
	gaps []bus.Range // by nobody, as far as held does not have them
}

func (w *workerTrail) times(record admin.Worker, everywhere bool) *workerTimes {
	var held, gaps Runs
	for _, h := range w.holders(record) {
		if h.from < h.until {
			held.Add(bus.Range{First: h.from, Last: h.until - 1})
		}
	}
	gaps.Add(w.gaps(record, everywhere)...)
	return &workerTimes{held.Finish(), gaps.Finish()}
}

// without returns what is left of ranges without others. Both are sorted, and each is apart from the next.
func without(ranges, others []bus.Range) (left []bus.Range) {
	for _, r := range ranges {
		for _, o := range others {
			if o.Last < r.First || o.First > r.Last {
				continue
			}
			if o.First > r.First {
				left = append(left, bus.Range{First: r.First, Last: o.First - 1})
			}
			if o.Last >= r.Last {
				r.First, r.Last = 1, 0 // nothing is left
				break
			}
			r.First = o.Last + 1
		}
		if r.First <= r.Last {
			left = append(left, r)
		}
	}
	return left
}

// workerPart is the part of a run of IDs that one worker made. times are in Unix ms.
type workerPart struct {
	worker int64
	times  bus.Range
}

// parts takes a run of IDs apart. A run crosses from one worker to the next, and from one unit of time to the next. It
// yields at most as many parts as there are workers, or units and workers in the run.
func parts(l snowflake.Layout, run bus.Range) func(yield func(workerPart) bool) {
	return func(yield func(workerPart) bool) {
		// A block has the IDs of one worker and one unit of time.
		first, last := run.First>>l.SequenceBits, run.Last>>l.SequenceBits
		for i := range min(last-first+1, l.Workers()) {
			worker := (first + i) & (l.Workers() - 1)
			from, to := (first+i)>>l.WorkerBits, (last-worker)>>l.WorkerBits
			if !yield(workerPart{worker, bus.Range{First: from*l.Unit() + l.Epoch, Last: to*l.Unit() + l.Epoch}}) {
				return
			}
		}
	}
}

// idSpan are IDs: how many, and the first and last of them. IDs of other workers may lie between.
type idSpan struct{ count, first, last int64 }

// ids returns the IDs of run that the worker made in units of time that begin at times.
func (p workerPart) ids(l snowflake.Layout, run, times bus.Range) idSpan {
	times = bus.Range{First: l.UnitFrom(times.First), Last: l.UnitOf(times.Last)}
	if times.First > times.Last {
		return idSpan{}
	}
	block := l.PerUnit() - 1
	begin := l.Compose(snowflake.Parts{UnixMS: times.First, Worker: p.worker})
	end := l.Compose(snowflake.Parts{UnixMS: times.Last, Worker: p.worker, Sequence: block})
	units := (times.Last-times.First)/l.Unit() + 1
	s := idSpan{units * (block + 1), max(begin, run.First), min(end, run.Last)}
	s.count -= s.first - begin + end - s.last // the run begins or ends in this block
	return s
}
