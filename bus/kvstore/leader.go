package kvstore

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
)

// leaderVersion is in the metadata of a stream that a server of 2.11 or later describes.
const leaderVersion = "_nats.ver"

// errOldLeader says that a server leads a bucket that is too old for that.
var errOldLeader = fmt.Errorf("%w: a NATS server older than 2.11 leads the bucket, and generators can repeat IDs with "+
	"it: upgrade every NATS server to 2.11.0 or later", allocator.ErrRefused)

// streamUnder returns the stream under a bucket, as its leader describes it. It refuses a leader that is older than
// 2.11: such a server can lose or repeat what a compare-and-set has written. No greeting shows that, because the
// leader may be another server than the one that the connection is to.
func streamUnder(ctx context.Context, js jetstream.JetStream, bucket string) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, streamOf(bucket))
	if err != nil {
		return nil, err
	}
	if info := stream.CachedInfo(); info.Config.Metadata[leaderVersion] == "" {
		if info.Cluster != nil && info.Cluster.Leader != "" {
			return nil, fmt.Errorf("%w (%s)", errOldLeader, info.Cluster.Leader)
		}
		return nil, errOldLeader
	}
	return stream, nil
}
