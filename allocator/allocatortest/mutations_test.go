//go:build mutations

package allocatortest

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations shows that the suite finds a store that breaks the contract: a suite that passes all is worth nothing.
func TestMutations(t *testing.T) {
	imports := func(name string) mutate.Edit {
		return mutate.Edit{"memory.go", "	\"sync\"\n", "	\"" + name + "\"\n	\"sync\"\n"}
	}
	change := func(before, after string) mutate.Edit { return mutate.Edit{"memory.go", before, after} }
	const (
		left  = "	left := t.Left(t.MaxID)\n"
		pause = "	m.mu.Unlock()\n	time.Sleep(time.Millisecond)\n	m.mu.Lock()\n"
		with  = "	if t, err = t.With(c); err != nil {"
	)
	for _, m := range []struct {
		name, by string // the case that finds it
		edits    []mutate.Edit
	}{
		{"a store reads, and then writes", "ManyHandles", []mutate.Edit{change(left, pause+left)}},
		{"a store reads, and then writes a strict tag", "StrictManyHandles", []mutate.Edit{change(left, pause+left)}},
		{"a step is not that of the record", "StepChanged", []mutate.Edit{change("max(n, t.Step), left)", "max(n, 10), left)")}},
		{"a range is one ID too long", "ManyHandles", []mutate.Edit{change("Last: t.MaxID + n - 1}", "Last: t.MaxID + n}")}},
		{"IDs begin at 1 again after the last one", "Exhausted", []mutate.Edit{change(
			"	if left < n {\n		return allocator.Grant{}, allocator.ErrExhausted\n", "	if left < n {\n		t.MaxID, left, n = 1, 1, 1\n")}},
		{"names that differ in case are one tag", "TagsAreApart", []mutate.Edit{imports("strings"), change(
			"m.getLocked(tag)\n	if err != nil {\n		return allocator.Grant{}", "m.getLocked(strings.ToLower(tag))\n	if err != nil {\n		return allocator.Grant{}")}},
		{"max_id moves back", "MaxIDBackwards", []mutate.Edit{change(with, "	if c.MaxID != nil && *c.MaxID < t.MaxID {\n		t.MaxID = *c.MaxID\n	} else if t, err = t.With(c); err != nil {")}},
		{"a floor is forgotten", "MaxIDMoved", []mutate.Edit{change("	return m.putLocked(t), nil\n}\n\n// Delete", "	t.Floor = 0\n	return m.putLocked(t), nil\n}\n\n// Delete")}},
		{"a search takes a part for a wildcard", "Search", []mutate.Edit{imports("strings"), change("q.Match(name)", "(q.Match(name) || strings.Contains(q.Contains, \"_\"))")}},
		{"a search folds case", "Search", []mutate.Edit{imports("strings"), change("q.Match(name)", "q.Match(strings.ToLower(name))")}},
		{"a search looks at one page", "Search", []mutate.Edit{change("for _, name := range slices", "for i, name := range slices"), change("len(found) < q.Limit", "i < q.Limit")}},
		{"an ID is taken where none is wanted", "StrictRanges", []mutate.Edit{change("	if t.Paused {", "	n = max(n, 1)\n	if t.Paused {")}},
		{"a deletion forgets the order", "StrictForLife", []mutate.Edit{change("ok && old.Order != tag.Order", "ok && !old.Deleted && old.Order != tag.Order")}},
		{"IDs are taken in a conflict", "StrictStaleHandle", []mutate.Edit{change("	m.putLocked(t)\n	return g, nil", "	m.putLocked(t)\n	if n == 2 {\n		return allocator.Grant{}, &allocator.OvertakenError{Tag: tag}\n	}\n	return g, nil")}},
		{"a strict tag gets a step", "StrictChanges", []mutate.Edit{change(with, "	c.Step = nil\n"+with)}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, "TestMemory/"+m.by, m.edits...) })
	}
}
