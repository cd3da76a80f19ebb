package kvstore

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// After a restore, or where clocks are wrong, a late creation may name a bucket that is above the one that there is.
// Its tag alone is refused.
func TestRecordOfALaterBucket(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	data, err := encodeTag(trend("late", 5), r.bucket.Load().first+1_000_000)
	if err == nil {
		_, err = cfg.JS.Publish(t.Context(), subjectOf(bus.BucketTags)+"late", data)
	}
	if err != nil {
		t.Fatal(err)
	}
	swap(t, r, trend("order", 11), 0)
	w := followTags(t, r)
	sync1(t, r)
	if w.end("order") != 11 {
		t.Errorf("the watch has order at %d", w.end("order"))
	}
	s, err := r.Load(t.Context(), "late")
	if !errors.Is(err, allocator.ErrDamaged) || s.Revision == 0 {
		t.Fatalf("Load: %+v, %v", s, err)
	}
	swap(t, r, trend("late", 500), s.Revision) // an operator says where it begins
	testkit.Eventually(t, "the tag is served", func() bool { return w.end("late") == 500 })
}
