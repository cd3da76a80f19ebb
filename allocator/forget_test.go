package allocator

import (
	"errors"
	"testing"
	"time"
)

// TestForgetGone: a buffer that a refill has dropped, and whose tag has another
// by now, must not take that with it: it would go on with a refill of its own
// that no Push reaches.
func TestForgetGone(t *testing.T) {
	a := New(Config{})
	old, err := a.buffer("order")
	if err != nil {
		t.Fatal(err)
	}
	a.drop(old, errors.New("deleted")) // between a Push's look-up of old and its forget
	b, err := a.buffer("order")
	if err != nil || b == old {
		t.Fatalf("buffer: %v, the old one: %v", err, b == old)
	}
	a.forget(old)
	if again, _ := a.buffer("order"); again != b || b.gone {
		t.Errorf("the new buffer was dropped with the old one")
	}
	// One that is there and empty is dropped.
	a.forget(b)
	if a.Tags() != 0 || !b.gone {
		t.Errorf("an empty buffer was kept")
	}
}

// TestGoneIsLookedUpAgain: a request that finds the buffer of its tag evicted takes nothing from
// it: the tag may have been raised meanwhile, in its next buffer.
func TestGoneIsLookedUpAgain(t *testing.T) {
	a := newCounting(1001, Config{})
	old, err := a.buffer("order")
	if err != nil {
		t.Fatal(err)
	}
	old.installLocked(Range{First: 1, Last: 100})
	old.gone = true
	time.AfterFunc(20*time.Millisecond, func() { // the map follows, so that the request ends
		s := a.shard("order")
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.buffers, "order")
	})
	ranges, err := a.Take(t.Context(), "order", 1)
	if err != nil || ranges[0].First <= 1000 {
		t.Errorf("Take: %v, %v; want an ID of the next buffer", ranges, err)
	}
}
