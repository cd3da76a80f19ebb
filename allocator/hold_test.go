package allocator_test

import (
	"context"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestHold: an operator's write keeps the claims of a strict tag back until it has ended, or for a time at most. Other
// tags go on.
func TestHold(t *testing.T) {
	for name, test := range map[string]struct {
		release time.Duration // 0: never
		want    time.Duration
	}{
		"released":   {release: 200 * time.Millisecond, want: 200 * time.Millisecond},
		"time is up": {want: time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, 10)
			s.createTag(strictTag("invoice"))
			a := start(t, allocator.Config{Records: s})
			take := func(tag string) (took time.Duration) {
				t.Helper()
				begun := time.Now()
				if _, err := a.Take(context.Background(), tag, 1); err != nil {
					t.Fatalf("Take: %v", err)
				}
				return time.Since(begun)
			}
			take("invoice")
			for _, tag := range []string{"invoice", "order", "unknown"} {
				a.Hold(tag, time.Second)
			}
			if test.release > 0 {
				time.AfterFunc(test.release, func() { a.Hold("invoice", 0) })
			}
			if took := take("order"); took > 0 {
				t.Errorf("an ID of a trend tag took %v", took)
			}
			if took := take("invoice"); took != test.want {
				t.Errorf("an ID of the strict tag took %v, want %v", took, test.want)
			}
			if took := take("invoice"); took > 0 {
				t.Errorf("afterwards an ID took %v", took)
			}
		})
	}
}
