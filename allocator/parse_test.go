package allocator

import (
	"bytes"
	"math"
	"testing"

	"github.com/leafbus/leafbus/bus/idspace"
)

// FuzzParseMark damages a line: it must never be read as a larger mark than
// was written, nor as another tag's.
func FuzzParseMark(f *testing.F) {
	f.Add("order", int64(1), 0, byte(0), 0)
	f.Add("order", int64(1000), 12, byte(1), 0)
	f.Add("a.b", int64(math.MaxInt64), 8, byte('a'^' '), 3)
	f.Add("0", int64(12345678), 30, byte(0x20), 100)
	f.Fuzz(func(t *testing.T, tag string, end int64, at int, flip byte, cut int) {
		line := appendLine(nil, tag, end)
		legal := idspace.CheckTag(tag) == nil && end > 0
		gotTag, gotEnd, ok := parseLine(line)
		if ok != legal || ok && (gotTag != tag || gotEnd != end) {
			t.Fatalf("%q is read as %q %d %v", line, gotTag, gotEnd, ok)
		}
		damaged := bytes.Clone(line)
		if at >= 0 && at < len(damaged) {
			damaged[at] ^= flip
		}
		if cut > 0 {
			damaged = damaged[:max(len(damaged)-cut, 0)]
		}
		gotTag, gotEnd, ok = parseLine(damaged)
		if ok && (gotTag != tag || gotEnd != end) {
			t.Errorf("%q, damaged to %q, is read as %q %d", line, damaged, gotTag, gotEnd)
		}
	})
}
