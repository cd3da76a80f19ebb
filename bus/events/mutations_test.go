//go:build mutations

package events

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes, after which a loop misses events, or gets one twice.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name, by string // by finds it
		edit     mutate.Edit
	}{
		{"what the last consumer sent comes again", "TestFollowLostConsumer", mutate.Edit{"follower.go",
			"slices.Contains(f.recent, m)", "false"}},
		{"the next consumer begins with what is new", "TestFollowThroughRestart", mutate.Edit{"follower.go",
			"	if !from.IsZero() {", "	if !from.IsZero() && !f.opened {"}},
		{"a loop that has no event yet misses some", "TestFollowLostConsumer", mutate.Edit{"follower.go",
			"		f.since = consumer.CachedInfo().Created", "		_ = consumer.CachedInfo().Created"}},
		{"a durable consumer that loses events is used", "TestDurableThatIsThere", mutate.Edit{"follower.go",
			"	case c.AckPolicy != jetstream.AckExplicitPolicy:", "	case false:"}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edit) })
	}
}
