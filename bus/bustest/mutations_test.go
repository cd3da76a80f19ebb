//go:build mutations

package bustest

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes, which break a promise: `make mutations`.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name string
		by   string // the test that finds it
		edit mutate.Edit
	}{
		{"an audit fails no test", "TestAuditNamesWhatContradicts", mutate.Edit{"audit.go", "t.Errorf(", "t.Logf("}},
		{"a generator that gave up counts as stopped", "TestGeneratorFails", mutate.Edit{"generator.go",
			"return fmt.Errorf(\"bustest: the generator failed: %w\", err)", "return nil"}},
		{"a test does not see the log of its generator", "TestStartLogs", mutate.Edit{"generator.go",
			"&testLog{out: t.Output()}", "&testLog{}"}},
		{"a generator leaves its folder", "TestClose", mutate.Edit{"generator.go",
			"errors.Join(err, os.RemoveAll(g.dir))", "err"}},
		{"a restart begins without its state", "TestStop", mutate.Edit{"run.go",
			"installation.OpenFolder(g.dir, node)", "installation.OpenFolder(g.dir+\"/\"+time.Now().Format(\"150405.000\"), node)"}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edit) })
	}
}
