//go:build mutations

package fresh

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each mutation.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name, by      string
		before, after string
	}{
		{"a record stays fresh for too long", "TestFresh", "const For = 100 * time.Millisecond", "const For = 101 * time.Millisecond"},
		{"a record is not fresh for long enough", "TestFresh", "Apart(time.Now(), k.at) > For", "Apart(time.Now(), k.at) >= For"},
		{"a record is fresh for ever", "TestFresh", "if !ok || Apart(time.Now(), k.at) > For {", "if !ok {"},
		{"a record that was forgotten is fresh", "TestFresh", "	delete(f.latest, key)\n", ""},
		{"records that were remembered are never forgotten", "TestRecordsAreBounded", "return Apart(at, old.at) > For", "return false"},
		{"records that are fresh are forgotten", "TestRecordsAreBounded", "return Apart(at, old.at) > For", "return true"},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, mutate.Edit{"fresh.go", m.before, m.after}) })
	}
}
