package kvstore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

// makeTags makes the bucket of the tags with this first sequence.
func makeTags(tb testing.TB, cfg Config, first uint64) {
	tb.Helper()
	c := streamFor(wire.BucketTags)
	c.FirstSeq = first
	if _, err := cfg.JS.CreateStream(tb.Context(), c); err != nil {
		tb.Fatal(err)
	}
}

// A snapshot that was put in the place of a later bucket has lower revisions. A push of one of them must not make a
// generator that has not noticed write a record for the later bucket there.
func TestPushAfterARestore(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	r := openRecordsOf(t, cfg)
	revision := swap(t, r, trend("order", 11), 0)
	restore := snapshot(t, s, wire.BucketTags)
	removeTags(t, cfg)
	makeTags(t, cfg, r.bucket.Load().first+1_000_000)
	if _, err := r.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	swap(t, r, trend("order", 16), 0)
	if _, err := r.Load(t.Context(), "order"); err != nil { // so revisions up to this one are known
		t.Fatal(err)
	}
	removeTags(t, cfg)
	restore()
	if _, err := r.Swap(t.Context(), trend("order", 21), revision); !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("a Swap on a revision of another bucket: %v", err)
	}
	if s, err := openRecordsOf(t, cfg).Load(t.Context(), "order"); err != nil || s.MaxID != 11 {
		t.Errorf("the record is %+v, %v", s, err)
	}
}

// A creation that was sent before the bucket was made again lands in the new one, where it counts for nobody.
func TestCreationMeanwhile(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	cfg, link := newConfig(t, s), linkTo(t, s)
	r := openRecordsOf(t, connect(t, "nats://"+link.Addr()))
	link.OnRequest(func(data []byte) kit.Action {
		if strings.Contains(string(data), "HPUB $KV.LEAF_TAGS.new") {
			link.OnRequest(nil)
			removeTags(t, cfg)
			makeTags(t, cfg, r.bucket.Load().first+1_000_000)
		}
		return kit.Forward
	})
	if _, err := r.Swap(testkit.Context(t), trend("new", 11), 0); !errors.Is(err, allocator.ErrUncertain) {
		t.Errorf("a creation that counts for nobody: %v", err)
	}
}

// While a restore is under way the bucket may be lost once more. An empty one must not count as whole.
func TestRestoreIntoALostBucket(t *testing.T) {
	t.Parallel()
	_, _, b := backedUp(t)
	to := newConfig(t, natskit.Start(t))
	again := func(bucket string, _, _ int) {
		if bucket == wire.BucketInstallation { // it comes after the tags
			removeTags(t, to)
		}
	}
	if _, err := Restore(t.Context(), to, b, nil, again); err == nil {
		t.Error("the restore is a success, and the tags are lost")
	}
	r := NewRecords(to)
	if err := r.Open(t.Context(), Installation{ID: "ours"}); err != nil || !errors.Is(r.Err(), allocator.ErrTagsLost) {
		t.Errorf("Open: %v, Err: %v", err, r.Err())
	}
	mustRestore(t, to, b, nil)
}

// A record of the installation that is made again while its tags are lost says that they are.
func TestInstallationMadeAgainWithoutTags(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	swap(t, openRecordsOf(t, cfg), trend("order", 5000), 0)
	removeTags(t, cfg)
	if err := cfg.JS.DeleteKeyValue(t.Context(), wire.BucketInstallation); err != nil {
		t.Fatal(err)
	}
	tags, err := FirstOfTags(t.Context(), cfg, "ours")
	if err == nil {
		err = CreateInstallation(t.Context(), cfg, Installation{ID: "ours", Tags: tags})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := openRecordsOf(t, cfg).Err(); !errors.Is(err, allocator.ErrTagsLost) {
		t.Errorf("Err: %v", err)
	}
}

// The tags of another installation are not those of this one, however they came here.
func TestTagsOfAnother(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	b := mustBackUp(t, cfg)
	revision := swap(t, r, trend("order", 5000), 0)
	if _, err := cfg.JS.Publish(t.Context(), subjectOf(wire.BucketTags)+markerKey,
		fmt.Appendf(nil, `{"installation":"others","first_seq":"%d"}`, r.bucket.Load().first)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Swap(t.Context(), trend("order", 5010), revision); err == nil ||
		!errors.Is(r.Err(), allocator.ErrRefused) {
		t.Errorf("a Swap among the tags of another installation: %v; Err: %v", err, r.Err())
	}
	if err := NewRecords(cfg).Open(t.Context(), Installation{ID: "ours"}); !errors.Is(err, allocator.ErrRefused) {
		t.Errorf("Open: %v", err)
	}
	if err := cfg.JS.DeleteKeyValue(t.Context(), wire.BucketInstallation); err != nil {
		t.Fatal(err)
	}
	if tags, err := FirstOfTags(t.Context(), cfg, "ours"); !errors.Is(err, allocator.ErrRefused) {
		t.Errorf("FirstOfTags: %d, %v", tags, err)
	}
	if _, err := Restore(t.Context(), cfg, b, nil, quietly); !errors.Is(err, allocator.ErrRefused) {
		t.Errorf("Restore: %v", err)
	}
	if _, ok, err := ReadInstallation(t.Context(), cfg); ok || err != nil {
		t.Errorf("a refused restore has made the installation's record: %v", err)
	}
}

// A record of a newer version is not put back as it is: for that version it would be of another bucket, so its tag
// would begin again.
func TestRestoreOfANewerVersion(t *testing.T) {
	t.Parallel()
	_, _, b := backedUp(t)
	for i, r := range b.Records {
		if r.Key == "order" {
			b.Records[i].Value = bytes.Replace(r.Value, []byte(`"format":1`), []byte(`"format":2`), 1)
		}
	}
	to := newConfig(t, natskit.Start(t))
	if done, err := Restore(t.Context(), to, b, nil, quietly); !errors.Is(err, allocator.ErrNewer) || done.Created > 0 {
		t.Errorf("%+v, %v", done, err)
	}
}

// A backup that is made while the tags are lost would lack them, and its restore would end the loss.
func TestNoBackupOfALoss(t *testing.T) {
	t.Parallel()
	cfg, r, _ := backedUp(t)
	var once sync.Once
	b, err := TakeBackup(t.Context(), cfg, func(bucket string, _, _ int) {
		if bucket == wire.BucketTags {
			once.Do(func() { removeTags(t, cfg); makeTags(t, cfg, r.bucket.Load().first+1_000_000) })
		}
	})
	if !errors.Is(err, allocator.ErrTagsLost) {
		t.Errorf("the tags are lost meanwhile: %d records, %v", len(b.Records), err)
	}
	removeTags(t, cfg)
	for range 2 { // without a bucket, and with a new one
		if b, err := TakeBackup(t.Context(), cfg, quietly); !errors.Is(err, allocator.ErrTagsLost) {
			t.Errorf("%d records, %v", len(b.Records), err)
		}
		if _, err := open(t.Context(), cfg, wire.BucketTags); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.EndLoss(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustBackUp(t, cfg)
}
