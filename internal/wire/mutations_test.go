//go:build mutations

package wire

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds a change after which a reply is misread.
func TestMutations(t *testing.T) {
	t.Run("a misread range is accepted", func(t *testing.T) {
		mutate.Runner{}.Run(t, "TestParseReplyRefuses", mutate.Edit{"reply.go",
			"ok = ok && r.Last > r.First", "ok = ok && r.Last >= r.First"})
	})
}
