//go:build mutations

package kvstore

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutationsOfKeys demands that a test finds each change of what keeps one master key.
func TestMutationsOfKeys(t *testing.T) {
	for _, m := range []struct {
		name, by      string
		before, after string // in keys.go
	}{
		{"a key that is not the one of the record is used", "TestSecondMaster",
			"opaque.KeyID(opaque.DeriveKey(master, t.Name, d)) != t.KeyID || ", ""},
		{"a name changes its domain", "TestOneMaster", ` && was != d {`, "&& was == d && false {"},
		{"a second master key is made while there are opaque tags", "TestLostMaster", `case sign != "":`, "case false:"},
		{"a second master key is made while it is not known whether there are any", "TestLostMaster",
			"switch sign, err := before(ctx); {\n		case err != nil:", "switch sign, err := before(ctx); {\n		case err != nil && false:"},
		{"a lost master key is not written back", "TestLostMaster", "if held != nil && errors.Is(err, errNoMaster) {", "if false {"},
		{"a second master key is not noticed", "TestSecondMaster", "held != nil && !bytes.Equal(held, master)", "bytes.Equal(held, nil) && false"},
		{"a master key is replaced in memory", "TestSecondMaster", "	if k.master != nil {\n		master = k.master\n	}\n",
			"	if m, err := k.read(ctx); err == nil {\n		master = m\n	}\n"},
		{"a tag is forgotten to be opaque", "TestManyOpaqueTags", "		clear(k.permutations)\n", "		clear(k.permutations)\n		clear(k.domains)\n"},
		{"all permutations stay in memory", "TestManyOpaqueTags", "		clear(k.permutations)\n", ""},
		{"a master key without a format is used", "FuzzDecodeMaster", " || r.Format != masterFormat", ""},
		{"a short master key is used", "FuzzDecodeMaster", " || len(r.Key) != opaque.MasterSize", ""},
	} {
		t.Run(m.name, func(t *testing.T) {
			mutate.Runner{By: m.by, Says: says}.Run(t, "", mutate.Edit{"keys.go", m.before, m.after})
		})
	}
}
