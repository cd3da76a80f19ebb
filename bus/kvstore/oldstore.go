package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
)

const (
	// oldStoreWait is how long a restore waits for the end of an old store, and oldStoreAgain its
	// pause before each look: longer than a server waits before it reports its store to the others,
	// which is 1.5 s.
	oldStoreWait  = time.Minute
	oldStoreAgain = 2 * time.Second
	// oldStoreHidden is how long the wait is where an old store cannot be seen beside the streams
	// of other programs.
	oldStoreHidden = 40 * time.Second
)

// CheckOldStore returns an error while a server still has the streams of the time when it was
// alone, and its new cluster does not know them. nats-server deletes them 30 s after the cluster
// has formed. A stream that is created before has their records on that server, and not on the
// others. So records would come and go with the leader.
//
// since is when the first such check was made: at first the servers have not reported their stores
// to each other, and streams of other programs hide an old store. The zero value: long ago.
func CheckOldStore(ctx context.Context, cfg Config, since time.Time) error {
	if !cfg.clustered() {
		return nil
	}
	waited := time.Since(since)
	info, err := cfg.JS.AccountInfo(ctx)
	switch {
	case code(err) == codeNoLeader:
		return fmt.Errorf("%w: JetStream has no leader: start more than half of the servers of the NATS cluster: %w",
			allocator.ErrUnavailable, err)
	case err == nil && info.Store > 0 && info.Streams == 0: // after another error: the user may not ask
		return fmt.Errorf("%w: JetStream has no stream, and a server of the cluster still has %d bytes of streams from "+
			"before: nothing is created until nats-server has deleted them, half a minute after the cluster has formed. "+
			"If that lasts, stop that server, and move the folder of its store_dir away", allocator.ErrUnavailable,
			info.Store)
	case waited < oldStoreAgain,
		waited < oldStoreHidden && err == nil && info.Store > 0 && !anyBucket(ctx, cfg):
		return fmt.Errorf("%w: waiting for up to a minute: a NATS server that was alone may still have old records, "+
			"which it deletes half a minute after its cluster has formed", allocator.ErrUnavailable)
	}
	return nil
}

// anyBucket reports whether there is a bucket of Leafbus, or may be one.
func anyBucket(ctx context.Context, cfg Config) bool {
	return slices.ContainsFunc(buckets, func(name string) bool {
		_, err := cfg.JS.Stream(ctx, streamOf(name))
		return !errors.Is(err, jetstream.ErrStreamNotFound)
	})
}

// AwaitOldStore waits until there is no old store in the cluster. It comes before [Restore].
func AwaitOldStore(ctx context.Context, cfg Config) error {
	for begin, said := time.Now(), false; ; {
		err := CheckOldStore(ctx, cfg, begin)
		waited := time.Since(begin)
		if err == nil || waited > oldStoreWait {
			return err
		}
		if !said && waited > oldStoreAgain {
			said = true
			cfg.log().Info("the restore waits", "why", err)
		}
		select {
		case <-time.After(oldStoreAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
