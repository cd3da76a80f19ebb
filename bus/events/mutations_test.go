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
		{"a number that a stream uses again is not new", "TestFollowRestoredStream", mutate.Edit{"follower.go",
			"m.at <= f.newest && slices.Contains(f.recent, m)",
			"slices.ContainsFunc(f.recent, func(r message) bool { return r.number == m.number })"}},
		{"a stream that was deleted ends the loop", "TestFollowStreamMadeAgain", mutate.Edit{"follower.go",
			"case !f.opened, errors.Is(err, errUnfit)", "case !f.opened, errors.Is(err, jetstream.ErrConsumerDeleted)"}},
		{"a loop without a stream waits for it", "TestFollowWhatCannotBe", mutate.Edit{"follower.go",
			"case !f.opened, errors", "case errors"}},
		{"a message that is no event ends the loop", "TestFollowPastOthers", mutate.Edit{"follower.go",
			"	if f.durable && bad != nil {", "	if bad != nil {\n		return bad\n	}\n	if f.durable && bad != nil {"}},
		{"a loop leaves its consumer", "TestFollowLeavesNothing", mutate.Edit{"follower.go",
			"			defer f.remove()\n", ""}},
		{"alerts are all events", "TestFollowWhich", mutate.Edit{"follow.go",
			"o.subject = AlertSubjects", "o.subject = Subjects"}},
		{"a denial is hidden", "TestFollowWithoutPermission", mutate.Edit{"follower.go",
			"strings.HasPrefix(subject, \"$JS.\")", "false"}},
		{"an event without a body has one", "TestBodiesOfOthers", mutate.Edit{"event.go",
			"	if body == nil {", "	if false {"}},
		{"an event that was handled comes again", "TestDurable", mutate.Edit{"follower.go",
			"		_ = msg.Ack()\n", ""}},
		{"a durable consumer that loses events is used", "TestDurableThatIsThere", mutate.Edit{"follower.go",
			"	case c.AckPolicy != jetstream.AckExplicitPolicy:", "	case false:"}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edit) })
	}
}
