package allocatortest

import (
	"fmt"
	"maps"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// floors: a handle that has seen no change returns the floor of every tag that operators
// have moved or deleted.
func floors(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	told := func() map[string]int64 {
		tb.Helper()
		found := make(map[string]int64)
		if err := other.Floors(within(tb), func(tag string, floor int64, _ allocator.Rules) { found[tag] = floor }); err != nil {
			tb.Fatalf("Floors: %v", err)
		}
		return found
	}
	if found := told(); len(found) > 0 {
		tb.Errorf("the floors of no tags are %v", found)
	}
	want := make(map[string]int64)
	for i := range 20 {
		name := fmt.Sprint("tag.", i)
		create(tb, s, name, 1, 10)
		reserve(tb, s, name, 100)
		switch i % 3 {
		case 0:
			to := int64(5000 + i)
			if _, err := s.Update(within(tb), name, allocator.Change{MaxID: &to}); err != nil {
				tb.Fatal(err)
			}
			want[name] = to
		case 1:
			if _, err := s.Delete(within(tb), name, 1); err != nil {
				tb.Fatal(err)
			}
			want[name] = 101
		}
	}
	create(tb, s, "tag.1", 1, 10) // it was deleted
	if found := told(); !maps.Equal(found, want) {
		tb.Errorf("the floors are %v, want %v", found, want)
	}
}
