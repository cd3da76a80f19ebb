//go:build mutations

package outbox

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

type edit = mutate.Edit

// TestMutations demands that a test finds each of these changes, which break a promise. It checks the tests, not the
// code: `make mutations`.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name  string
		by    string // the test that finds it
		edits []edit
	}{
		{"two events of a key are under way", "TestRetriesKeepTheOrder", []edit{{"outbox.go",
			"if keys[key] || len(batch)", "if len(batch)"}}},
		{"an event that is too large holds up all others", "TestEventsWait", []edit{{"outbox.go",
			"ok && api.ErrorCode == codeTooLarge:", "ok && api.ErrorCode == 0:"}}},
		{"a stop loses what it interrupts", "TestFlushKeepsTheOrder", []edit{{"outbox.go", "p.flush(left)", "p.flush(nil)"}}},
		{"alerts find no room in the queue", "TestQueueIsBounded", []edit{{"outbox.go",
			"!isAlert && len(p.queue) >= infoQueue {", "false {"}, {"outbox.go", "	isAlert := strings", "	_ = strings"}}},
		{"work that need not hurry floods the queue of events", "TestManyEvents", []edit{{"outbox.go",
			"for len(p.queue) > pacedQueue && ", "for false && "}}},
		{"no tag is loaded ahead while the stream is away", "TestPaceWithoutStream", []edit{{"outbox.go",
			" && p.Err() == nil", ""}}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edits...) })
	}
}
