package kvstore

import (
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

// leaderVersion is in the metadata of a stream that a server of 2.11 or later describes.
const leaderVersion = "_nats.ver"

// errOldLeader says that a server leads a bucket that is too old for that.
var errOldLeader = fmt.Errorf("%w: a NATS server older than 2.11 leads the bucket, and generators can repeat IDs with "+
	"it: upgrade every NATS server to 2.11.0 or later", allocator.ErrRefused)

// checkLeader refuses a leader that is older than 2.11: such a server can lose or repeat what a
// compare-and-set has written. No greeting shows that, because the leader may be another server
// than the one that the connection is to.
func checkLeader(info *jetstream.StreamInfo) error {
	switch {
	case info.Config.Metadata[leaderVersion] != "":
		return nil
	case info.Cluster != nil && info.Cluster.Leader != "":
		return fmt.Errorf("%w (%s)", errOldLeader, info.Cluster.Leader)
	}
	return errOldLeader
}

// Fit returns an error that matches [allocator.ErrRefused] if a bucket with this configuration
// could lose records by itself, or give old ones. The bucket of the tags must be as generators make
// it, apart from its replicas and size.
func Fit(bucket string, c jetstream.StreamConfig) error {
	what, tags := flaw(c), bucket == wire.BucketTags
	switch {
	case tags && c.Description != descriptions[bucket]:
		return fmt.Errorf("%w: bucket %s is of another version of Leafbus, or of another program (its description "+
			"is %q): use that version; or, if none of its IDs is in use, remove the bucket with `nats stream rm %s`",
			allocator.ErrRefused, bucket, c.Description, c.Name)
	case what == "" && tags:
		what = tagsFlaw(c)
	}
	if what == "" {
		return nil
	}
	return fmt.Errorf("%w: bucket %s has %s, so records could vanish and IDs repeat: remove that setting with "+
		"`nats stream edit %s`; if that is not possible: `leaf backup`, stop all generators, `nats stream rm %[4]s`, "+
		"`leaf restore`", allocator.ErrRefused, bucket, what, streamOf(bucket))
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

// tagsFlaw names a setting with which tags could be claimed twice; "": none.
func tagsFlaw(c jetstream.StreamConfig) string {
	switch {
	case c.FirstSeq == 0:
		return "no first sequence of its own"
	case c.MaxMsgsPerSubject != 1 || c.Discard != jetstream.DiscardNew || c.DiscardNewPerSubject:
		return "other limits than one message a subject with discard new"
	case !c.DenyDelete || !c.DenyPurge || c.AllowRollup:
		return "the permission to delete, purge or roll up messages"
	case c.AllowDirect || c.MirrorDirect:
		return "direct reads, which a server that is behind may answer"
	case !slices.Equal(c.Subjects, streamFor(wire.BucketTags).Subjects), c.Mirror != nil, len(c.Sources) > 0,
		c.SubjectTransform != nil, c.Sealed, c.NoAck:
		return "other subjects or sources, or takes no writes"
	}
	return ""
}
