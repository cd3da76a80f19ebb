package allocator

import (
	"errors"
	"testing"
)

// TestForgetGone: a buffer that a refill has dropped, and whose tag has another
// by now, must not take that with it: it would go on with a refill of its own
// that no Apply reaches.
func TestForgetGone(t *testing.T) {
	a := New(Config{})
	old, err := a.buffer("order")
	if err != nil {
		t.Fatal(err)
	}
	a.drop(old, errors.New("deleted")) // between Apply's look-up of old and its forget
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
