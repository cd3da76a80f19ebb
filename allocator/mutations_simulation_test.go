//go:build mutations

package allocator_test

// simulatedMutations are those that the simulation finds, in more worlds than usual.
var simulatedMutations = []mutation{
	// The claim.
	{name: "nothing is claimed", edits: []edit{{"claim.go",
		"	if err := c.claim(ctx, tag, &grant); err != nil {\n		return Grant{}, err\n	}\n", ""}}},
	{name: "a range below the end is claimed", edits: []edit{
		{"claim.go", "if r.First < max(e.End, c.marks.End(tag)) {", "if false {"},
		{"claim.go", "e.End, e.Last = r.Last+1, NewClaim", "e.End, e.Last = max(e.End, r.Last+1), NewClaim"}}},
	{name: "the end of a claim is one too low", edits: []edit{
		{"claim.go", "e.End, e.Last = r.Last+1, NewClaim", "e.End, e.Last = r.Last, NewClaim"}}},
	{name: "a lost answer counts as a claim", edits: []edit{{"claim.go",
		"c.ledger.Write(ctx, tag, e); err == nil {", "c.ledger.Write(ctx, tag, e); !errors.Is(err, ErrConflict) {"}}},
	{name: "a conflict counts as a claim", edits: []edit{{"claim.go",
		"c.ledger.Write(ctx, tag, e); err == nil {", "c.ledger.Write(ctx, tag, e); err == nil || errors.Is(err, ErrConflict) {"}}},
	{name: "after a conflict only the revision is read again", edits: []edit{{"claim.go",
		"		if e.Revision, err = c.ledger.Write(ctx, tag, e); err == nil {\n", "		e.Revision, err = c.ledger.Write(ctx, tag, e)\n" +
			"		if errors.Is(err, ErrConflict) {\n			newer, _ := c.ledger.Read(ctx, tag)\n			e.Revision = newer.Revision\n			e.Revision, err = c.ledger.Write(ctx, tag, e)\n		}\n		if err == nil {\n"}}},
	{name: "a claim forgets the floor", edits: []edit{{"claim.go",
		"e.End, e.Last = r.Last+1, NewClaim(*r, c.node)", "e.End, e.Floor, e.Last = r.Last+1, 0, NewClaim(*r, c.node)"}}},
	{name: "a claim ignores reports", by: "TestClaimBelowAReport", edits: []edit{{"claim.go",
		"max(e.End, c.marks.End(tag))", "e.End"}}},

	// Healing.
	{name: "the store is not moved up to the ledger's end", edits: []edit{{"claim.go",
		"	from = max(from, e.End)\n", "	_ = e\n"}}},
	{name: "the store may offer less than was seen", edits: []edit{
		{"refill.go", "a.cfg.Store.Reserve(ctx, tag, n, seen)", "a.cfg.Store.Reserve(ctx, tag, n, min(seen, 0))"},
		{"refill.go", "grant.check(seen)", "grant.check(0)"}}},
	{name: "a range is not marked", edits: []edit{{"refill.go",
		"	a.mark(tag, grant.Last+1)\n", ""}}},
	{name: "the alert of a store that went backwards has no end", edits: []edit{{"event.go",
		"		a.cfg.Notify(Recovered{b.tag, \"regressed\"})\n", ""}}},

	// Operators.
	{name: "the floor is not raised in memory", edits: []edit{{"buffer.go",
		"	b.floor = floor\n	b.trimLocked()\n", "	b.trimLocked()\n"}}},
	{name: "what is in memory below the floor is kept", edits: []edit{{"buffer.go",
		"	b.floor = floor\n	b.trimLocked()\n", "	b.floor = floor\n"}}},
	{name: "the end of the ledger moves down", edits: []edit{{"claim.go",
		"		e.End, e.Floor = max(e.End, end), max(e.Floor, floor)\n		made", "		e.End, e.Floor = end, max(e.Floor, floor)\n		made"}}},
	{name: "a range whose claim came too late is used", edits: []edit{{"claim.go",
		"			return errTooLate\n", "			return nil\n"}}},
	{name: "a range that came too late is a failure", edits: []edit{{"claim.go",
		"fmt.Errorf(\"%w: another generator claimed a later range first, so this one is lost\", ErrConflict)", "errors.New(\"too late\")"}}},
	{name: "a floor spares what waiters hold", edits: []edit{{"buffer.go",
		"w != nil && slices.ContainsFunc(w.ranges, below)", "false && slices.ContainsFunc(w.ranges, below)"}}},
	{name: "eviction forgets the mark", edits: []edit{{"allocator.go",
		"	delete(a.buffers, b.tag)\n", "	delete(a.buffers, b.tag)\n	delete(a.cfg.Marks.ends, b.tag)\n"}}},
	{name: "all below the ledger's end is claimed", edits: []edit{{"claim.go",
		"if r.First < max(e.End, c.marks.End(tag)) {", "if r.First < c.marks.End(tag) {"}}},
	{name: "a floor spares the refill under way", edits: []edit{{"buffer.go",
		"Next: r.First})\n	b.trimLocked()\n", "Next: r.First})\n	b.left += r.Len()\n"}}},
}
