//go:build mutations

package wire

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes, after which a message is misread.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name, by string // by finds it
		edit     mutate.Edit
	}{
		{"a misread range is accepted", "TestParseReplyRefuses", mutate.Edit{"reply.go",
			"ok = ok && r.Last > r.First", "ok = ok && r.Last >= r.First"}},
		{"white space is no request for one ID", "TestParseRequest", mutate.Edit{"request.go",
			"	body = bytes.TrimSpace(body)\n", "	_ = bytes.TrimSpace\n"}},
		{"an unknown field is ignored", "TestParseRequestRefuses", mutate.Edit{"request.go",
			"		if name != \"count\" {", "		if false {"}},
		{"a fork says the version that it replaces", "TestVersion", mutate.Edit{"version.go",
			"			m = m.Replace\n", ""}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edit) })
	}
}
