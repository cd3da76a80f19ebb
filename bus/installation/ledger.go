package installation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
)

const (
	// ledgerCheck is how often the bucket of the ledger is looked at.
	ledgerCheck = 5 * time.Second
	// ledgerAgain is the least pause between two looks.
	ledgerAgain = time.Second
	// ledgerPoll is how often the opening of the store looks whether claims are possible.
	ledgerPoll = 20 * time.Millisecond
	// ledgerTimeout bounds a look at the bucket. A cluster of two servers takes two seconds to create it.
	ledgerTimeout = 5 * time.Second
	// seedAtOnce is how many records are written at a time.
	seedAtOnce = 64
	// seedReport is how often a long seeding logs how far it is.
	seedReport = 5 * time.Second
)

// ledger seeds the bucket of the ledger, and looks at it from then on. Seeding writes a record for each
// tag that is known: from the database (its rows and its table leaf_mark), the last refill event of each
// tag, and this generator's marks. Nothing is claimed before the installation's record says that the bucket is
// seeded. A record is only ever raised. So several generators may seed at once, and any of them goes on
// with what another one began. It implements [generator.Ledger] and [generator.Records].
type ledger struct {
	*kvstore.Ledger
	Config
	apart    *kvstore.Store     // of the strict and opaque tags
	tags     *allocator.Ordered // whose ranges are claimed in it
	opened   chan struct{}      // closed when the database is open
	open     func()             // closes opened
	again    time.Duration      // ledgerAgain, but in tests
	check    time.Duration      // ledgerCheck, but in tests
	replaced time.Time          // creation of the bucket for which the alert was published; owned by Keep
}

func newLedger(c Config, apart *kvstore.Store) *ledger {
	opened := make(chan struct{})
	l := &ledger{Ledger: kvstore.NewLedger(), Config: c, apart: apart, opened: opened, open: sync.OnceFunc(func() { close(opened) }),
		again: ledgerAgain, check: ledgerCheck}
	l.Suspend(fmt.Errorf("%w: the MySQL database has not been reached yet", allocator.ErrUnavailable))
	return l
}

// Err implements [generator.Ledger]. Before the database is open nothing is known of the ledger: its bucket
// is not looked at, and the database is what is missing.
func (l *ledger) Err() error {
	select {
	case <-l.opened:
		return l.Ledger.Err()
	default:
		return nil
	}
}

// OnShadow implements [generator.Ledger].
func (l *ledger) OnShadow(f func(tag string, shadowed bool)) { l.tags.OnShadow(f) }

// Claimed implements [generator.Records].
func (l *ledger) Claimed(ctx context.Context, tag string) (allocator.Entry, error) {
	e, err := l.Ledger.Claimed(ctx, tag)
	if order := e.Order; err == nil && order != allocator.Trend {
		e, err = l.apart.Claimed(ctx, tag)
		e.Order = order // also if its record was never made
	}
	return e, err
}

// Stored implements [generator.Records].
func (l *ledger) Stored(ctx context.Context, tag string, end int64) (allocator.Tag, error) {
	e, err := l.Ledger.Read(ctx, tag)
	if err == nil && e.Order != allocator.Trend {
		return l.apart.Stored(ctx, tag, end)
	}
	return l.Database.Stored(ctx, tag, end)
}

// await notes that the database is open, and waits until claims are possible, or the bucket is refused.
func (l *ledger) await(ctx context.Context) error {
	l.open()
	again := time.NewTicker(ledgerPoll)
	defer again.Stop()
	for {
		err := l.Err()
		if err == nil || errors.Is(err, allocator.ErrRefused) || ctx.Err() != nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// Keep implements [generator.Ledger].
func (l *ledger) Keep(ctx context.Context, mayBegin func(context.Context) error, replaced func(cause string)) {
	pause(ctx, nil, l.opened)
	logged := ""
	for ctx.Err() == nil {
		err := l.settle(ctx, mayBegin, replaced)
		if err != nil && ctx.Err() == nil && logged != err.Error() {
			logged = err.Error()
			l.State.Log.Warn("the ledger cannot be used; trying again", "error", err)
		}
		pause(ctx, time.After(l.again), nil)
		if err == nil {
			logged = ""
			pause(ctx, time.After(l.check-l.again), l.Doubts())
		}
	}
}

// pause waits until the context is done, or one of the channels is ready.
func pause(ctx context.Context, over <-chan time.Time, early <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-over:
	case <-early:
	}
}

// settle makes sure that the bucket is there, is fit and is seeded, and then lets claims be made in it.
func (l *ledger) settle(ctx context.Context, mayBegin func(context.Context) error, replaced func(cause string)) error {
	have, bucket, seeded, err := l.look(ctx)
	switch {
	case errors.Is(err, allocator.ErrRefused):
		l.Suspend(err)
		return err
	case err != nil:
		l.Missed(err)
		return err
	case seeded && l.Failed():
		if err := bucket.SetSeeded(ctx); err != nil { // a write that changes nothing
			l.Missed(err)
			return err
		}
		fallthrough
	case seeded:
		l.Use(bucket)
		return nil
	}
	l.Suspend(fmt.Errorf("%w: the ledger (bucket %s) is being filled", allocator.ErrUnavailable, bus.BucketLedger))
	if !have.Ledger.IsZero() && !l.replaced.Equal(bucket.Created) {
		l.replaced = bucket.Created
		cause := fmt.Sprintf("bucket %s was created at %v, and the one before at %v", bus.BucketLedger,
			bucket.Created.Format(time.RFC3339), have.Ledger.Format(time.RFC3339))
		if have.Ledger.Equal(bucket.Created) {
			cause = fmt.Sprintf("bucket %s has lost its records: was the disk with them replaced?", bus.BucketLedger)
		}
		replaced(cause)
	}
	if err = mayBegin(ctx); err == nil {
		err = l.fill(ctx, bucket)
	}
	if err == nil {
		err = bucket.SetSeeded(ctx)
	}
	if err == nil {
		_, err = kvstore.ChangeInstallation(ctx, l.State, func(have *kvstore.Installation) error {
			have.Ledger = bucket.Created
			return nil
		})
	}
	if err != nil {
		l.Suspend(err)
		return err
	}
	l.replaced = time.Time{} // the next loss may have the same creation
	l.Use(bucket)
	return nil
}

// look returns the installation's record and the bucket, which it creates if it is missing. seeded says that both
// agree that the bucket has a record of each tag.
func (l *ledger) look(ctx context.Context) (have kvstore.Installation, bucket *kvstore.LedgerBucket, seeded bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	have, ok, err := kvstore.ReadInstallation(ctx, l.State)
	if err == nil && !ok {
		err = errors.New("the installation's record is lost")
	}
	if err != nil { // not %w: a bucket that is in use is fit, whatever became of that record
		return have, nil, false, fmt.Errorf("%w: %v", allocator.ErrUnavailable, err)
	}
	bucket, err = kvstore.OpenLedger(ctx, l.State)
	if err == nil && have.Ledger.Equal(bucket.Created) {
		seeded, err = bucket.Seeded(ctx)
	}
	return have, bucket, seeded, err
}

// fill writes a record for each tag that is known.
func (l *ledger) fill(ctx context.Context, bucket *kvstore.LedgerBucket) error {
	seeds := make(map[string]allocator.Entry)
	note := func(tag string, end, floor int64) {
		if allocator.CheckTag(tag) == nil {
			e := seeds[tag]
			seeds[tag] = allocator.Entry{End: max(e.End, end, floor, 1), Floor: max(e.Floor, floor)}
		}
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
	// A name that is strict or opaque stays that, whatever row the database has. Its record may be lost, and the number
	// alone does not show its order.
	apart := func(tag string, order allocator.Order) {
		if order != allocator.Trend && order.Known() {
			seeds[tag] = allocator.Entry{End: 1, Order: order}
		}
	}
	err = generator.LastChanges(ctx, l.State.JS, "", func(t admin.TagRecord, _ bool) {
		if allocator.CheckTag(t.Tag) == nil {
			apart(t.Tag, generator.OrderOf(t))
		}
	})
	if err != nil {
		return fmt.Errorf("which tags were strict or opaque cannot be read: %w", err)
	}
	err = l.apart.Each(ctx, func(t allocator.Tag) { apart(t.Name, t.Order) })
	if err != nil {
		return fmt.Errorf("the strict and opaque tags cannot be read: %w", err)
	}
	return write(ctx, bucket, seeds, l.State.Log)
}

// write raises the records of all seeds, seedAtOnce at a time.
func write(ctx context.Context, bucket allocator.Ledger, seeds map[string]allocator.Entry, log *slog.Logger) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	tags := make(chan string)
	var writers sync.WaitGroup
	for range min(seedAtOnce, len(seeds)) {
		writers.Go(func() {
			for tag := range tags {
				_, err := bucket.Write(ctx, tag, seeds[tag]) // most tags have no record yet
				if errors.Is(err, allocator.ErrConflict) {
					_, err = allocator.Raise(ctx, bucket, tag, seeds[tag].End, seeds[tag].Floor)
				}
				switch {
				case errors.Is(err, allocator.ErrApart): // the marker is there
				case errors.Is(err, allocator.ErrDamaged): // it must not stop the others
					log.Error("a record of the ledger is damaged, so its tag is refused", "tag", tag, "error", err)
				case err != nil:
					fail(err) // the others fail soon
				}
			}
		})
	}
	done, reported := 0, time.Now()
	for tag := range seeds {
		tags <- tag
		if done++; time.Since(reported) >= seedReport {
			reported = time.Now()
			log.Info("filling the ledger; no range is reserved meanwhile", "tags", len(seeds), "done", done)
		}
	}
	close(tags)
	writers.Wait()
	return context.Cause(ctx)
}
