//go:build mutations

package faults

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// says is how a row fails. Seeds, what callers met, and a program that cannot be built are no failures of a row.
const says = `(?m)^\s+\w+\.go:\d+: ` +
	`((?:waited|answered|ID \d|max_id|an opaque tag|\d+ requests|leaf audit|the processes|the network|"|\w+: ).*)`

// TestMutations demands that a row finds each of these breaks of a promise, in a real process. Packages find smaller
// ones. `make mutations` runs it.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name  string
		by    string // the row
		edits []mutate.Edit
	}{
		{"the ledger accepts a range below its end", "the_database_is_set_back,_and_all_that_knew_better_are_gone/mysql",
			[]mutate.Edit{
				{"../../allocator/claim.go", "	from = max(from, e.End)\n", "	_ = e\n"},
				{"../../allocator/claim.go", "if r.First < max(e.End, c.marks.End(tag)) {", "if false {"},
			}},
		{"what a generator claimed itself does not count", "JetStream_is_set_back/kv,_one_generator",
			[]mutate.Edit{
				{"../../allocator/refill.go", "Reserve(ctx, tag, n, seen)", "Reserve(ctx, tag, n, min(1, seen))"},
				{"../../allocator/refill.go", "if err := grant.check(seen); err != nil {", "if err := error(nil); err != nil {"},
			}},
		{"a tag in JetStream is claimed without compare-and-set", "generators_are_killed,_and_come_back/kv,_three_generators",
			[]mutate.Edit{{"../../bus/kvstore/store.go",
				"kv.Update(ctx, tag, record, old.revision)", "kv.Put(ctx, tag, record)"}}},
		{"a change does not name a generator that is not heard", "max_id_moves_while_a_generator_stands_still/kv",
			[]mutate.Edit{{"../../bus/generator/broadcast.go",
				"unheard, missing = lost, nil", "unheard, missing = lost[:0], nil"}}},
		{"a generator that stood still asks for no floor", "max_id_moves_while_a_generator_stands_still/kv",
			[]mutate.Edit{{"../../bus/generator/floors.go", "	return g.floors.isShut.Load()\n", "	return false\n"}}},
		{"the age of a command does not count", "a_command_comes_late/kv",
			[]mutate.Edit{{"../../bus/generator/endpoint.go", "now.Add(patience - age -", "now.Add(patience -"}}},
		{"requests of a standstill are answered", "callers_gave_up_during_a_standstill/kv",
			[]mutate.Edit{{"../../bus/generator/silence.go", "tooOld = 5 * time.Second", "tooOld = time.Hour"}}},
		{"a newcomer makes a second installation", "the_record_of_the_installation_is_lost/kv,_one_generator",
			[]mutate.Edit{{"../../bus/generator/identity.go", `		if b.Installation != "" {`, "		if false {"}}},
		{"new keys are made where the bucket was lost", "the_keys_of_opaque_tags_are_lost/kv,_one_generator",
			[]mutate.Edit{{"../../bus/kvstore/keys.go", `case sign != "":`, "case false:"}}},
		{"a damaged record of the ledger counts as none", "a_record_is_damaged/mysql,_one_generator",
			[]mutate.Edit{{"../../bus/kvstore/ledger.go",
				"	if flaw != \"\" {\n		return allocator.Entry{}, fmt.Errorf(",
				"	if flaw != \"\" {\n		return allocator.Entry{Revision: revision}, nil\n	}\n	if flaw != \"\" {\n" +
					"		return allocator.Entry{}, fmt.Errorf("}}},
	} {
		t.Run(m.name, func(t *testing.T) {
			mutate.Runner{By: "TestFaults/" + m.by, Says: says, Package: "."}.Run(t, "", m.edits...)
		})
	}
}
