package kvstore

import (
	"context"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

const (
	// oldStoreWait is how long a restore waits for the end of an old store, and oldStoreAgain its pause before each look:
	// longer than a server waits before it reports its store to the others, which is 1.5 s.
	oldStoreWait  = time.Minute
	oldStoreAgain = 2 * time.Second
)

// checkOldStore returns an error while a server still has the streams of the time when it was alone, and its new
// cluster does not know them. nats-server deletes them 30 s after the cluster has formed. A stream that is created
// before has their records on that server, and not on the others. So records would come and go with the leader.
func checkOldStore(ctx context.Context, cfg Config) error {
	if cfg.JS.Conn().ConnectedClusterName() == "" {
		return nil
	}
	info, err := cfg.JS.AccountInfo(ctx)
	if err != nil || info.Streams > 0 || info.Store == 0 { // the user may not ask
		return nil
	}
	return fmt.Errorf("%w: JetStream has no stream, and a server of the cluster still has %d bytes of streams from before: nothing is "+
		"created until nats-server has deleted them, half a minute after the cluster has formed. "+
		"If that lasts, stop that server, and move the folder of its store_dir away", allocator.ErrUnavailable, info.Store)
}

// awaitOldStore waits until there is no old store in the cluster.
func awaitOldStore(ctx context.Context, cfg Config) error {
	if cfg.JS.Conn().ConnectedClusterName() == "" {
		return nil
	}
	for end := time.Now().Add(oldStoreWait); ; {
		select {
		case <-time.After(oldStoreAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := checkOldStore(ctx, cfg); err == nil || time.Now().After(end) {
			return err
		}
	}
}
