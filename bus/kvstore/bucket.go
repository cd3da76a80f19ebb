package kvstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

// Config says where the buckets are and how they are made.
type Config struct {
	Conn *nats.Conn
	JS   jetstream.JetStream
	// Replicas of the buckets that are created: 1 to 5, or 0 for 3 where the
	// cluster has them, else 1.
	Replicas int
	Log      *slog.Logger // default: slog.Default
}

func (c Config) log() *slog.Logger { return cmp.Or(c.Log, slog.Default()) }

const (
	defaultReplicas = 3
	// A cluster that is starting has too few peers for a while.
	placementTries = 4
	placementPause = 500 * time.Millisecond

	codeNoPeers      jetstream.ErrorCode = 10005 // JSClusterNoPeersErrF
	codeNoLeader     jetstream.ErrorCode = 10008 // JSClusterNotAvailErr
	codeNotClustered jetstream.ErrorCode = 10074 // JSStreamReplicasNotSupportedErr
	codeNotCreated   jetstream.ErrorCode = 10049 // JSStreamCreateErrF
)

// ErrNoJetStream says that no server answers for JetStream. That may pass: the servers with
// JetStream may be away.
var ErrNoJetStream = errors.New("no JetStream answers on this NATS")

// streamOf is the name of the stream under a bucket.
func streamOf(bucket string) string { return "KV_" + bucket }

// subjectOf is what comes before the key in the subject of a bucket's record.
func subjectOf(bucket string) string { return "$KV." + bucket + "." }

// writeTo is where a write of this subject is sent. With a JetStream domain that is another one, because a leaf node of
// NATS passes on nothing to $KV.>.
func (c Config) writeTo(subject string) string {
	if domain := c.JS.Options().Domain; domain != "" {
		return "$JS." + domain + ".API." + subject
	}
	return subject
}

// openBucket returns the bucket, which it creates if it is missing. One that
// could lose records by itself is refused.
func openBucket(ctx context.Context, cfg Config, name, description string, size int64) (jetstream.KeyValue, error) {
	return openStream(ctx, cfg, name, size, func(replicas int, maxBytes int64) error {
		_, err := cfg.JS.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: name, Description: description, History: 1, Storage: jetstream.FileStorage, Replicas: replicas,
			MaxBytes: maxBytes,
		})
		return err
	})
}

// openStream is openBucket for a bucket that create makes. maxBytes is 0 unless the account demands a size.
func openStream(
	ctx context.Context, cfg Config, name string, size int64, create func(replicas int, maxBytes int64) error,
) (jetstream.KeyValue, error) {
	stream, err := streamUnder(ctx, cfg.JS, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := makeStream(ctx, cfg, name, size, create); err != nil {
			return nil, err
		}
		stream, err = streamUnder(ctx, cfg.JS, name)
	}
	if err != nil {
		return nil, unreached(name, err)
	}
	if err := Fit(name, stream.CachedInfo().Config); err != nil {
		return nil, err
	}
	kv, err := cfg.JS.KeyValue(ctx, name)
	if err != nil {
		return nil, unreached(name, err)
	}
	return kv, nil
}

// makeStream makes the stream under a bucket that is missing, see openStream.
func makeStream(
	ctx context.Context, cfg Config, name string, size int64, create func(replicas int, maxBytes int64) error,
) error {
	if err := checkOldStore(ctx, cfg); err != nil {
		return err
	}
	err := replicate(ctx, cfg, func(replicas int) error {
		err := create(replicas, 0)
		if code(err) == codeNotCreated {
			// A server that still removes the files of a deleted stream refuses the new one 2 times in 1,000.
			err = create(replicas, 0)
		}
		if code(err) == codeNeedsSize {
			err = shrink(size, func(maxBytes int64) error {
				err := create(replicas, maxBytes)
				if err == nil {
					cfg.log().Info("the account demands that streams have a size: "+
						"`leaf doctor` warns before the bucket is full",
						"bucket", name, "bytes", maxBytes)
				}
				return err
			})
		}
		if errors.Is(err, jetstream.ErrBucketExists) || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil // another generator was first, with other replicas
		}
		return err
	})
	if err != nil {
		return unreached(name, err)
	}
	return nil
}

// unreached is the error of a bucket that cannot be looked up.
func unreached(name string, err error) error {
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("%w: %w", ErrNoJetStream, err)
	}
	return fmt.Errorf("bucket %s: %w", name, err)
}

// Fit returns an error that matches [allocator.ErrRefused] if a bucket with this configuration could lose records by
// itself.
func Fit(bucket string, c jetstream.StreamConfig) error {
	if bucket == wire.BucketTags {
		return fitTags(c)
	}
	if flaw := flaw(c); flaw != "" {
		return fmt.Errorf("%w: bucket %s has %s, so records could vanish and IDs repeat; remove that setting, "+
			"for example with `nats stream edit %s`",
			allocator.ErrRefused, bucket, flaw, streamOf(bucket))
	}
	return nil
}

// leaderOf returns a handle of the stream under a bucket, for reads that only the leader answers. Another replica may
// lag behind by many seconds.
func leaderOf(ctx context.Context, js jetstream.JetStream, bucket string) (jetstream.Stream, error) {
	stream, err := streamUnder(ctx, js, bucket)
	if err != nil {
		return nil, err
	}
	stream.CachedInfo().Config.AllowDirect = false // for this handle, not in the stream
	return stream, nil
}

// decodeWhole reads the JSON of a record that has only known fields, and nothing behind it.
func decodeWhole(data []byte, record any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(record); err != nil {
		return err
	}
	if _, more := decoder.Token(); more != io.EOF {
		return errors.New("more follows the record")
	}
	return nil
}

// flaw names a setting with which a bucket loses confirmed records; "": none.
func flaw(c jetstream.StreamConfig) string {
	switch {
	case c.MaxAge > 0:
		return fmt.Sprintf("an age limit (%v)", c.MaxAge)
	case c.Retention != jetstream.LimitsPolicy: // `nats stream edit` can set that of interest
		return "another retention than by limits"
	case c.AllowMsgTTL || c.SubjectDeleteMarkerTTL > 0:
		return "per-key TTLs"
	case c.PersistMode == jetstream.AsyncPersistMode:
		return "asynchronous persistence"
	case c.Storage == jetstream.MemoryStorage:
		return "memory storage"
	case c.Discard == jetstream.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0):
		return "a size limit that discards old records"
	}
	return ""
}

// replicate calls create with the configured number of replicas. The default is 3 in a
// cluster, or 1 if the cluster has fewer than 3 servers with JetStream. It does not take a server that is away for
// one that does not exist: if the installation's record has 3 replicas, the error stays until all are back.
func replicate(ctx context.Context, cfg Config, create func(replicas int) error) error {
	switch {
	case cfg.Replicas > 0:
		err := create(cfg.Replicas)
		if code(err) == codeNotClustered {
			err = fmt.Errorf("%w: --replicas %d needs a cluster of NATS servers, and this server is in none: leave it out, "+
				"or see docs/operate.md: %w", allocator.ErrRefused, cfg.Replicas, err)
		}
		return err
	case cfg.Conn.ConnectedClusterName() == "": // it is in none
		return create(1)
	}
	for range placementTries {
		err := create(defaultReplicas)
		if c := code(err); c != codeNoPeers && c != codeNotClustered {
			return err
		}
		record, lookErr := cfg.JS.Stream(ctx, streamOf(wire.BucketInstallation))
		if lookErr == nil && record.CachedInfo().Config.Replicas >= defaultReplicas {
			return fmt.Errorf("a NATS server of the cluster is away: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(placementPause):
		}
	}
	cfg.log().Warn("the cluster has fewer than three servers with JetStream: one of them keeps the state; " +
		"losing that server loses the installation (see --replicas)")
	return create(1)
}
