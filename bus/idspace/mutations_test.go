//go:build mutations

package idspace

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes, here or in the allocator: an ID is handed out twice, or
// a name is taken that not every store can hold.
func TestMutations(t *testing.T) {
	const allocator = "../../allocator"
	for _, m := range []struct {
		name, in, by string // by finds it
		edits        []mutate.Edit
	}{
		{"a wildcard is a tag", ".", "TestCheckTag", []mutate.Edit{{"tag.go",
			"c == '_' || c == '='", "c == '_' || c == '*' || c == '='"}, {"tag.go", "c == '*' || c == '>'", "c == '>'"}}},
		{"a tag has an empty token", ".", "TestCheckTag", []mutate.Edit{{"tag.go",
			"case c == '.' && token == 0, c", "case c"}}},
		{"a run of one ID is written as two", ".", "TestRange", []mutate.Edit{{"range.go",
			"	if r.Last != r.First {", "	if true {"}}},
		{"a burst below 0 is accepted", allocator, "TestRulesRefused", []mutate.Edit{{"rules.go",
			"min(q.PerSecond, q.Burst) < 0 || ", "q.PerSecond < 0 || "}}},
		{"one ID that two hold is no overlap at the end", allocator, "TestOverlap", []mutate.Edit{{"range.go",
			"r.First <= other.Last &&", "r.First < other.Last &&"}}},
		{"one ID that two hold is no overlap at the beginning", allocator, "TestOverlap", []mutate.Edit{{"range.go",
			"&& other.First <= r.Last }", "&& other.First < r.Last }"}}},
		{"ranges are joined across a gap", allocator, "TestTakeAcrossSegments", []mutate.Edit{{"range.go",
			"ranges[n-1].Last+1 == r.First", "ranges[n-1].Last < r.First"}}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{Package: m.in}.Run(t, m.by, m.edits...) })
	}
}
