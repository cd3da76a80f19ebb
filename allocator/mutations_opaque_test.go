//go:build mutations

package allocator_test

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutationsOfOpaque demands that a test finds each change of what keeps the keys of opaque tags apart.
func TestMutationsOfOpaque(t *testing.T) {
	for name, e := range map[string]edit{
		"a name that is made again gets a new key":                   {"tags.go", "	case s.KeyID != \"\":\n", "	case false:\n"},
		"a name gets a domain without its record":                    {"tags.go", "case used && known.Order == Trend && !explicit:", "case false:"},
		"a name gets another domain than others know":                {"tags.go", "known.Order != Trend && known.Order != t.Order {", "false {"},
		"a name that was in use makes the first secret":              {"tags.go", "		if used {\n", "		if false {\n"},
		"a secret is made before the records are all known":          {"tags.go", "		err = a.cfg.Records.Sync(ctx)\n", ""},
		"a secret is made while the records are lost":                {"tags.go", "if err = a.cfg.Records.Err(); err == nil {", "{"},
		"a secret is made while the database knows an opaque name":   {"tags.go", "if r.Kind == KindOpaque {", "if false {"},
		"a secret is made while there is an opaque tag":              {"index.go", "	case x.opaque != \"\":\n", "	case false:\n"},
		"a secret is made while a record of any kind cannot be read": {"index.go", "	case x.bad > 0:\n", "	case false:\n"},
		"the order of a tag that was seen is forgotten":              {"index.go", "	return orders[x.of[tag].order]\n", "	return Trend\n"},
	} {
		t.Run(name, func(t *testing.T) { mutate.Runner{}.Run(t, "TestCreateOpaque", e) })
	}
}
