//go:build mutations

package allocator_test

// simulatedMutations are those that the simulation finds, in more worlds than usual.
var simulatedMutations = []mutation{
	// The claim.
	{name: "a lost answer counts as a claim", edits: []edit{{"claims.go",
		"		made, err := c.swap(ctx, t, s.Revision)\n		if err == nil {\n			return Grant{", "		made, err := c.swap(ctx, t, s.Revision)\n		if err == nil || !errors.Is(err, ErrConflict) {\n			return Grant{"}}},
	{name: "a conflict counts as a claim", edits: []edit{{"claims.go",
		"		made, err := c.swap(ctx, t, s.Revision)\n		if err == nil {\n			return Grant{", "		made, err := c.swap(ctx, t, s.Revision)\n		if err == nil || errors.Is(err, ErrConflict) {\n			return Grant{"}}},
	{name: "a range below the end is claimed", edits: []edit{
		{"record.go", "	if c.First < t.MaxID {\n		return t, errTooLate\n	}\n", ""},
		{"record.go", "t.MaxID, t.Last, t.Updated = c.Last+1, c, c.Time", "t.MaxID, t.Last, t.Updated = max(t.MaxID, c.Last+1), c, c.Time"},
		{"claims.go", "if claim.First < c.cfg.Index.End(s.Name) {", "if false {"}}},
	{name: "the end of a claim is one too low", edits: []edit{{"record.go",
		"t.MaxID, t.Last, t.Updated = c.Last+1, c, c.Time", "t.MaxID, t.Last, t.Updated = c.Last, c, c.Time"}}},
	{name: "after a conflict only the revision is read again", edits: []edit{{"claims.go",
		"		was := s\n		if s, err = c.load(ctx, s.Name); err != nil {\n			return Grant{}, err\n		}\n",
		"		was := s\n		if s, err = c.load(ctx, s.Name); err != nil {\n			return Grant{}, err\n		}\n		s.Tag = was.Tag\n"}}},
	{name: "a claim forgets the floor", edits: []edit{{"record.go",
		"t.MaxID, t.Last, t.Updated = c.Last+1, c, c.Time", "t.Floor, t.MaxID, t.Last, t.Updated = 0, c.Last+1, c, c.Time"}}},
	{name: "a claim of a strict tag serves requests that came later", edits: []edit{{"strict.go",
		"if w.number >= p.before || w.n > ", "if w.n > "}}},
	{name: "a range of the database is not claimed", edits: []edit{{"claims.go",
		"	return c.claim(ctx, s, Claim{", "	if c.cfg.Numbers != nil && s.Order == Trend {\n		return Grant{Range: r, Step: max(s.Step, 1), Stored: s}, nil\n	}\n	return c.claim(ctx, s, Claim{"}}},

	// What comes from others, and from operators.
	{name: "a floor is not taken in", edits: []edit{{"buffer.go",
		"	b.floor = floor\n	b.trimLocked()\n", "	b.trimLocked()\n"}}},
	{name: "what is in memory below the floor is kept", edits: []edit{{"buffer.go",
		"	b.floor = floor\n	b.trimLocked()\n", "	b.floor = floor\n"}}},
	{name: "a floor counts by the revision of its record", edits: []edit{{"reconcile.go",
		"	b.raiseFloorLocked(floor)\n", "	if current {\n		b.raiseFloorLocked(floor)\n	}\n"}}},

	// The database.
	{name: "a vanished row leaves no tombstone", by: "TestPoll", edits: []edit{{"poll.go",
		"	for _, name := range gone {\n", "	for _, name := range gone[:0] {\n"}}},
	{name: "a row that comes again does not bring its tag back", edits: []edit{{"poll.go",
		"t.Deleted, t.Step, t.Updated = false, row.Step, Now()", "t.Step, t.Updated = row.Step, Now()"}}},

	// What a generator does around an allocator.
	{name: "a generator that was away serves at once", edits: []edit{{"simulation_node_test.go",
		"if !r.shut && !r.stale && (", "if false && ("}}},
	{name: "a command waits for one second", edits: []edit{{"simulation_chaos_test.go", "rounds := 12;", "rounds := 4;"}}},
}
