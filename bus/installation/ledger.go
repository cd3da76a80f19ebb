package installation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
)

const (
	// ledgerCheck is how often the bucket of the ledger is looked at.
	ledgerCheck = 5 * time.Second
	// ledgerAgain is the pause before the next attempt after one that failed.
	ledgerAgain = time.Second
	// ledgerTimeout bounds a look at the bucket.
	ledgerTimeout = 2 * time.Second
	// seedAtOnce is how many records are written at a time.
	seedAtOnce = 64
	// seedReport is how often a long seeding logs how far it is.
	seedReport = 5 * time.Second
)

// ledger seeds the bucket of the ledger, and looks at it from then on. Seeding writes a record for each
// tag that is known: from the database (its rows and its table leaf_mark), the last refill event of each
// tag, and this generator's marks. Nothing is claimed before the installation's record says that the bucket is
// seeded. A record is only ever raised. So several generators may seed at once, and any of them goes on
// with what another one began. It implements [generator.Ledger].
type ledger struct {
	*kvstore.Ledger
	Config
	opened   chan struct{} // closed when the database is open
	settled  chan struct{} // closed when claims were possible for the first time
	begun    sync.Once
	replaced time.Time // creation of the bucket for which the alert was published; owned by Keep
}

func newLedger(c Config) *ledger {
	return &ledger{Ledger: kvstore.NewLedger(), Config: c, opened: make(chan struct{}), settled: make(chan struct{})}
}

// await notes that the database is open, and waits until claims are possible.
func (l *ledger) await(ctx context.Context) error {
	l.begun.Do(func() { close(l.opened) })
	select {
	case <-l.settled:
		return nil
	case <-ctx.Done():
		return l.Err()
	}
}

// Keep implements [generator.Ledger].
func (l *ledger) Keep(ctx context.Context, mayBegin func(context.Context) error, replaced func(cause string)) {
	select {
	case <-l.opened:
	case <-ctx.Done():
		return
	}
	logged := ""
	for ctx.Err() == nil {
		err := l.settle(ctx, mayBegin, replaced)
		wait := ledgerCheck - ledgerAgain
		switch {
		case err == nil:
			logged = ""
		case ctx.Err() == nil && logged != err.Error():
			logged = err.Error()
			l.State.Log.Warn("the ledger cannot be used; trying again", "error", err)
			fallthrough
		default:
			wait = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(ledgerAgain):
		}
		select {
		case <-ctx.Done():
		case <-l.Doubts():
		case <-time.After(wait):
		}
	}
}

// settle makes sure that the bucket is there, is fit and is seeded, and then lets claims be made in it.
func (l *ledger) settle(ctx context.Context, mayBegin func(context.Context) error, replaced func(cause string)) error {
	look, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	bucket, err := kvstore.OpenLedger(look, l.State)
	var have kvstore.Installation
	if err == nil {
		var ok bool
		if have, ok, err = kvstore.ReadInstallation(look, l.State); err == nil && !ok {
			err = errors.New("the installation's record is lost")
		}
	}
	switch {
	case errors.Is(err, allocator.ErrRefused):
		l.Suspend(err)
		return err
	case err != nil:
		l.Missed(err)
		return err
	case have.Ledger.Equal(bucket.Created):
		l.use(bucket)
		return nil
	}
	l.Suspend(fmt.Errorf("%w: the ledger (bucket %s) is being filled", allocator.ErrUnavailable, bus.BucketLedger))
	if !have.Ledger.IsZero() && !l.replaced.Equal(bucket.Created) {
		l.replaced = bucket.Created
		replaced(fmt.Sprintf("bucket %s was created at %v, and the one before at %v", bus.BucketLedger,
			bucket.Created.Format(time.RFC3339), have.Ledger.Format(time.RFC3339)))
	}
	if err := l.fill(ctx, bucket, mayBegin); err != nil {
		l.Suspend(err)
		return err
	}
	_, err = kvstore.ChangeInstallation(ctx, l.State, func(have *kvstore.Installation) error {
		have.Ledger = bucket.Created
		return nil
	})
	if err != nil {
		return err
	}
	l.use(bucket)
	return nil
}

func (l *ledger) use(bucket *kvstore.LedgerBucket) {
	l.Use(bucket)
	select {
	case <-l.settled:
	default:
		close(l.settled)
	}
}

// fill writes a record for each tag that is known.
func (l *ledger) fill(ctx context.Context, bucket *kvstore.LedgerBucket, mayBegin func(context.Context) error) error {
	if err := mayBegin(ctx); err != nil {
		return err
	}
	seeds := make(map[string]allocator.Entry)
	note := func(tag string, end, floor int64) {
		if allocator.CheckTag(tag) != nil {
			return
		}
		e := seeds[tag]
		seeds[tag] = allocator.Entry{End: max(e.End, end, 1), Floor: max(e.Floor, floor)}
	}
	noteEnd := func(tag string, end int64) { note(tag, end, 0) }
	err := l.Database.Ends(ctx, note)
	if err == nil {
		err = generator.LastRefills(ctx, l.State.JS, "", noteEnd)
	}
	if err != nil {
		return fmt.Errorf("how far the tags were cannot be read: %w", err)
	}
	l.Folder.Marks.Each(noteEnd)

	have := make(map[string]allocator.Entry) // by others that seed, or in an earlier attempt
	err = bucket.Each(ctx, func(tag string, e allocator.Entry) { have[tag] = e })
	if err != nil {
		return err
	}
	for tag, e := range have {
		if seed, ok := seeds[tag]; ok && e.End >= seed.End && e.Floor >= seed.Floor {
			delete(seeds, tag)
		}
	}
	return write(ctx, bucket, seeds, have, l.State.Log)
}

// write raises the records of all seeds, seedAtOnce at a time.
func write(ctx context.Context, bucket allocator.Ledger, seeds, have map[string]allocator.Entry, log *slog.Logger) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var done atomic.Int64
	tags := make(chan string)
	var writers sync.WaitGroup
	for range min(seedAtOnce, len(seeds)) {
		writers.Go(func() {
			for tag := range tags {
				if err := raise(ctx, bucket, tag, seeds[tag], have[tag]); err != nil {
					fail(err)
					return
				}
				done.Add(1)
			}
		})
	}
	report := time.NewTicker(seedReport)
	defer report.Stop()
	for tag := range seeds {
		for sent := false; !sent && ctx.Err() == nil; {
			select {
			case tags <- tag:
				sent = true
			case <-report.C:
				log.Info("filling the ledger; no range is reserved meanwhile", "tags", len(seeds), "done", done.Load())
			case <-ctx.Done():
			}
		}
	}
	close(tags)
	writers.Wait()
	return context.Cause(ctx)
}

// raise raises one record. A damaged one must not stop the others: its tag is refused, and the log says so.
func raise(ctx context.Context, bucket allocator.Ledger, tag string, seed, have allocator.Entry) error {
	seed.Revision = have.Revision
	seed.End, seed.Floor = max(seed.End, have.End), max(seed.Floor, have.Floor)
	_, err := bucket.Write(ctx, tag, seed)
	if errors.Is(err, allocator.ErrConflict) {
		_, err = allocator.Raise(ctx, bucket, tag, seed.End, seed.Floor)
	}
	if errors.Is(err, allocator.ErrDamaged) {
		return nil
	}
	return err
}
