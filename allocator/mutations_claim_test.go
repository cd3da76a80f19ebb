//go:build mutations

package allocator_test

// claimMutations break the rules of claims, N1 to N8.
var claimMutations = []mutation{
	// N1 Propose.
	{name: "a range of the database may begin below the record's end", by: "TestPropose", edits: []edit{
		{"claims.go", "c.cfg.Numbers.Advance(ctx, s.Name, n, s.Step, max(s.MaxID, from))", "c.cfg.Numbers.Advance(ctx, s.Name, n, s.Step, 1)"}}},
	{name: "a claim takes all that a limit leaves", by: "TestPropose", edits: []edit{
		{"claims.go", "min(max(p.n, s.Step), left/leftShare)", "min(max(p.n, s.Step), left)"}}},
	{name: "a claim takes less than is wanted", by: "TestPropose", edits: []edit{
		{"claims.go", "n := max(min(p.need, left), min(", "n := max(1, min("}}},
	{name: "all that is left is claimed bit by bit", by: "TestPropose", edits: []edit{
		{"claims.go", "min(p.need, left)", "min(p.need, max(left/leftShare, 1))"}}},
	{name: "a claim of a strict tag takes a step", by: "TestPropose|TestStrictClaims", edits: []edit{
		{"claims.go", "		n = p.need\n", "		n = max(p.need, 10)\n"}}},
	{name: "an opaque tag is numbered by the database", by: "TestPropose", edits: []edit{
		{"claims.go", "case c.cfg.Numbers != nil && s.Order == Trend:\n		r, step", "case c.cfg.Numbers != nil:\n		r, step"}}},
	{name: "a claim goes beyond the limit", by: "TestPropose|TestEnds", edits: []edit{
		{"record.go", "	c.Last = min(c.Last, t.end()-1)\n", ""}}},

	{name: "a claim rests on a record from before a standstill", by: "TestRestoreWhileALoadStandsStill", edits: []edit{
		{"claims.go", "if err != nil || apart(time.Now(), at) <= loadTimeout {", "if true {"}}},

	// N2 Refuse.
	{name: "a deleted tag is claimed", by: "TestRefusedClaim|TestTransitions", edits: []edit{
		{"record.go", "	case s.Deleted:\n		return ErrDeleted\n", ""}}},
	{name: "a paused tag is claimed", by: "TestRefusedClaim|TestTransitions", edits: []edit{
		{"record.go", "	if t.Paused {", "	if false {"}}},
	{name: "a range above the limit is claimed", by: "TestRefusedClaim|TestTransitions", edits: []edit{
		{"record.go", "	if t.Left(c.First) == 0 {", "	if false {"}}},
	{name: "a range below the end is claimed", by: "TestRefusedClaim|TestTransitions", edits: []edit{
		{"record.go", "	if c.First < t.MaxID {", "	if c.First < t.MaxID-1 {"}}},
	{name: "a range below a mark is claimed", by: "TestRefusedClaim", edits: []edit{
		{"claims.go", "if claim.First < c.cfg.Index.End(s.Name) {", "if false {"}}},
	{name: "a range just above a mark is not claimed", by: "TestRefusedClaim", edits: []edit{
		{"claims.go", "if claim.First < c.cfg.Index.End(s.Name) {", "if claim.First <= c.cfg.Index.End(s.Name) {"}}},
	{name: "a range does not wait for the one below it", by: "TestClaimInTurn", edits: []edit{
		{"claims.go", "if ofDatabase && s.MaxID < claim.First && s.Last", "if false && s.Last"}}},
	{name: "a range waits for long for the one below it", by: "TestClaimInTurn", edits: []edit{
		{"claims.go", "claimTurn = 25 *", "claimTurn = 2500 *"}}},
	{name: "the first claim of a tag waits", by: "TestClaimInTurn", edits: []edit{
		{"claims.go", " && s.Last.First != 0 {", " {"}}},
	{name: "a range that waits does not hear of the one below it", by: "TestClaimInTurn", edits: []edit{
		{"claims.go", "fresh && now.Revision > s.Revision {", "fresh && now.Revision > 1<<62 {"}}},

	// N3 Swap.
	{name: "a certain conflict loses the range", by: "TestClaimAgain", edits: []edit{
		{"claims.go", "case s.Order == Strict, !ofDatabase:", "case true:"}}},
	{name: "a range is claimed again on records alone", by: "TestClaimAgain", edits: []edit{
		{"claims.go", "case s.Order == Strict, !ofDatabase:", "case s.Order == Strict:"}}},
	{name: "a conflict without another writer counts", by: "TestClaimAgain", edits: []edit{
		{"claims.go", "		case s.Revision == was.Revision: //", "		case false: //"}}},
	{name: "a claim is written again on the record that was refused", by: "TestClaimAgain", edits: []edit{
		{"claims.go", "		if s, err = c.load(ctx, s.Name); err != nil {\n			return Grant{}, err\n		}\n		if pauseFor",
			"		var now Stored\n		if now, err = c.load(ctx, s.Name); err != nil {\n			return Grant{}, err\n		}\n		s.Revision = now.Revision\n		if pauseFor"}}},
	{name: "a claim is written again without a pause", by: "TestClaimAgainEnds", edits: []edit{
		{"claims.go", "		pauseFor = min(max(2*pauseFor, firstRace), lastRace)\n", ""}}},
	{name: "a tag whose record was lost a moment ago is unknown", by: "TestRefusedClaim", edits: []edit{
		{"claims.go", "		case s.Revision == 0: //", "		case false: //"}}},

	// N4 Any other error.
	{name: "an uncertain claim is sent again", by: "TestClaimUncertain", edits: []edit{
		{"claims.go", "		if !errors.Is(err, ErrConflict) {\n			return Grant{}, err\n		}\n		was := s", "		was := s"}}},

	// N6 The basis.
	{name: "the record is loaded for each claim", by: "TestBasis", edits: []edit{
		{"claims.go", "	s := Stored{t, revision}\n	c.latest.Put(t.Name, s, at)\n", "	s := Stored{t, revision}\n	c.latest.Forget(t.Name)\n	_ = at\n"}}},
	{name: "a record that was just loaded is loaded again", by: "TestBasis", edits: []edit{
		{"claims.go", "				c.latest.Put(tag, s, at)\n", ""}}},
	{name: "a record is as old as the answer of its write", by: "TestBasis", edits: []edit{
		{"claims.go", "	s := Stored{t, revision}\n	c.latest.Put(t.Name, s, at)\n", "	s := Stored{t, revision}\n	c.latest.Put(t.Name, s, time.Now())\n	_ = at\n"}}},
	{name: "a record that was pushed or watched is loaded", by: "TestBasis", edits: []edit{
		{"claims.go", "			at = s.Updated\n		}\n		c.latest.Put(s.Name, s, at)\n", "		}\n"}}},

	// N7 Rise.
	{name: "a record below the mark is not raised", by: "TestPropose|TestRaised", edits: []edit{
		{"claims.go", "	if c.behind(s, from) { // so", "	if false { // so"}}},
	{name: "a raised record lacks the floor", by: "TestRaised|TestHealed", edits: []edit{
		{"claims.go", "	t := s.Rise(end, floor)\n", "	t := s.Rise(end, 0)\n"}}},
	{name: "a raised record lacks the rules", by: "TestRaised|TestHealed", edits: []edit{
		{"claims.go", "	if rules.Version > t.Version {", "	if false {"}}},
	{name: "a raise that was refused is an alert", by: "TestRaised", edits: []edit{
		{"claims.go", "		case err != nil:\n		case is.Revision == 0:", "		case is.Revision == 7:"}}},

	// N8 No record.
	{name: "a row without a record is unknown", by: "TestAdopt", edits: []edit{
		{"claims.go", "	if err == nil && s.Revision == 0 {\n		s, err = c.adopt(ctx, tag)\n	}\n	if err == nil {\n		err = s.present()\n	}\n	if err != nil {\n		return Grant{}",
			"	if err == nil {\n		err = s.present()\n	}\n	if err != nil {\n		return Grant{}"}}},
	{name: "a name that may be lost is unknown", by: "TestAdopt|TestTagsLost", edits: []edit{
		{"claims.go", "		unknown = lost\n", ""}}},
	{name: "no row is served while the records are lost", by: "TestAdopt|TestTagsLost", edits: []edit{
		{"claims.go", "	case lost != nil && !errors.Is(lost, ErrTagsLost):", "	case lost != nil:"}}},
	{name: "a record is made while the records have another trouble", by: "TestAdopt", edits: []edit{
		{"claims.go", "	case lost != nil && !errors.Is(lost, ErrTagsLost):", "	case false:"}}},
	{name: "a row with the name of a strict tag is served", by: "TestAdopt|TestPoll", edits: []edit{
		{"claims.go", "	case row.Kind == KindStrict || row.Kind == KindOpaque:", "	case false:"}}},
	{name: "the mark of a deletion does not count for a new record", by: "TestAdopt|TestPoll", edits: []edit{
		{"claims.go", "MaxID: max(row.MaxID, row.Mark, 1)", "MaxID: max(row.MaxID, 1)"}}},
	{name: "nobody is asked in the place of a tombstone", by: "TestCreate", edits: []edit{
		{"tags.go", "		if (s.present() != nil || damage != nil) && !asked {", "		if (s.Revision == 0 || damage != nil) && !asked {"}}},
	{name: "nobody is asked before a record is made", by: "TestAdopt", edits: []edit{
		{"claims.go", "	known, err := c.cfg.Ask(ctx, tag)\n	if err != nil {\n		return Stored{}, err\n	}\n", "	known := Known{}\n"}}},
	{name: "what this generator knows does not count for a new record", by: "TestTagsLost", edits: []edit{
		{"claims.go", "	known = known.Merge(Known{End: c.cfg.Index.End(tag), Floor: floor, Order: c.cfg.Index.Order(tag), Rules: rules})\n", "	_, _ = floor, rules\n"}}},
	{name: "another generator that makes the record is an outage", by: "TestAdopt", edits: []edit{
		{"claims.go", "	if errors.Is(err, ErrConflict) { // another generator was first", "	if false { //"}}},

	// The rest.
	{name: "numbers of an opaque tag are claimed without its key", by: "TestOpaqueClaim", edits: []edit{
		{"claims.go", "	if s.Order.Domain() != \"\" {\n		if err", "	if false {\n		if err"}}},
	{name: "a start forgets the learnt step", by: "TestLearnt", edits: []edit{
		{"claims.go", "	if p.base == 0 && s.Order", "	if false && s.Order"}}},
	{name: "a step that was learnt long ago counts", by: "TestLearnt", edits: []edit{
		{"claims.go", " && time.Since(s.Last.Time) < learnFor {", " {"}}},
	{name: "a first batch forgets the learnt step", by: "TestLearnt", edits: []edit{
		{"refill.go", "		b.stepper.step = p.step\n	}\n	cause", "	}\n	cause"}}},
	{name: "a claim is not recorded", by: "TestClaimRecorded", edits: []edit{
		{"record.go", "	t.MaxID, t.Last, t.Updated = c.Last+1, c, c.Time\n", "	t.MaxID, t.Updated = c.Last+1, c.Time\n"}}},
	{name: "a claim is recorded without its time", by: "TestClaimRecorded", edits: []edit{
		{"claims.go", "		claim.Time = Now()\n", ""}}},
	{name: "a claim that cannot be read damages its record", by: "TestClaimUnreadable", edits: []edit{
		{"record.go", "		p = plain{}\n", "		return err\n"}}},
	{name: "a claim is used as far as it can be read", by: "TestClaimUnreadable", edits: []edit{
		{"record.go", "		p = plain{}\n", ""}}},
}
