package allocator

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// BenchmarkFailing is what a generator does several times in 200 ms, while the store is
// away and that many tags fail.
func BenchmarkFailing(b *testing.B) {
	for _, tags := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("tags=%d", tags), func(b *testing.B) {
			a := New(Config{})
			away := errors.New("away")
			for i := range tags {
				t, err := a.buffer(fmt.Sprintf("order.%06d", i))
				if err != nil {
					b.Fatal(err)
				}
				t.mu.Lock()
				t.stepper.rebase(1000)
				t.installLocked(Range{1, 1000})
				t.mu.Unlock()
				a.failed(t, away, time.Second)
			}
			b.ReportAllocs()
			for b.Loop() {
				if f := a.Failing(); f.Tags != tags || f.Store == nil {
					b.Fatal(f)
				}
			}
		})
	}
}
