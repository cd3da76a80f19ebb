//go:build mutations

package allocator_test

// reconcileMutations break the merge of records, W4 to W6, and the commands.
var reconcileMutations = []mutation{
	{name: "W4: the rules of an older record of the same version count", by: "TestMerge", edits: []edit{
		{"ruled.go", "|| r.Version == old.Version && !current {", "{"}}},
	{name: "W4: other rules of the same version are ignored", by: "TestMerge", edits: []edit{
		{"ruled.go", "|| r.Version == old.Version && !current {", "|| r.Version == old.Version {"}}},
	{name: "W4: the floor of an older record is ignored", by: "TestMerge", edits: []edit{
		{"reconcile.go", "	b.raiseFloorLocked(floor)\n", "	if current {\n		b.raiseFloorLocked(floor)\n	}\n"}}},
	{name: "W4: rules that the record lacks are not written back", by: "TestHealed", edits: []edit{
		{"reconcile.go", "(s.MaxID < was.end || a.newerRules(s))", "(s.MaxID < was.end)"}}},
	{name: "W6: a record that was set back stays", by: "TestHealed", edits: []edit{
		{"reconcile.go", "(s.MaxID < was.end || a.newerRules(s))", "a.newerRules(s)"}}},
	{name: "W6: the first records of a watch are not compared", by: "TestHealed", edits: []edit{
		{"reconcile.go", "!pushed && (u.First || s.Revision", "!pushed && (s.Revision"}}},
	{name: "W6: a push begins a raise", by: "TestMerge|TestHealed", edits: []edit{
		{"reconcile.go", "	if !pushed && (u.First", "	if (u.First"}}},
	{name: "W6: a raise that failed is not tried again", by: "TestHealed", edits: []edit{
		{"reconcile.go", "				a.heals.add(names[i])\n", ""}}},
	{name: "W6: a raised record is no alert", by: "TestHealed", edits: []edit{
		{"reconcile.go", "		a.cfg.Notify(Regressed{Tag: tag, Got: was.MaxID, Seen: is.MaxID, Action: Advanced})\n", ""}}},
	{name: "W6: nobody hears of a raised record", by: "TestHealed", edits: []edit{
		{"reconcile.go", "		a.cfg.Push(is)\n", ""}}},
	{name: "a damaged record is no alert", by: "TestUnusable", edits: []edit{
		{"reconcile.go", "		a.cfg.Notify(Damaged{Tag: s.Name, Err: why})\n", ""}}},
	{name: "the alert of a damaged record has no end", by: "TestUnusable", edits: []edit{
		{"reconcile.go", "		a.cfg.Notify(Recovered{s.Name, \"damaged\"})\n", ""}}},
	{name: "IDs of a record of a newer version are handed out", by: "TestUnusable", edits: []edit{
		{"reconcile.go", "		b.segments = nil\n", ""}}},

	// Commands.
	{name: "a new tag begins below what others know", by: "TestCreate", edits: []edit{
		{"tags.go", "if others, err = a.cfg.Ask(ctx, t.Name); err != nil {", "if _, err = a.cfg.Ask(ctx, t.Name); err != nil {"}}},
	{name: "a new tag begins below what this generator knows", by: "TestCreate", edits: []edit{
		{"tags.go", "known := others.Merge(a.Known(t.Name))", "known := others"}}},
	{name: "a new tag begins below what the sender knows", by: "TestCreate", edits: []edit{
		{"tags.go", "		known.End = max(known.End, seen)\n", ""}}},
	{name: "a new tag begins below the mark of a deletion", by: "TestCreate", edits: []edit{
		{"tags.go", "		known.End = max(known.End, row.Mark)\n", ""}}},
	{name: "a new tag begins below the tombstone", by: "TestCreate|TestEnds", edits: []edit{
		{"record.go", "max(t.MaxID, s.MaxID, known, 1)", "max(t.MaxID, known, 1)"}}},
	{name: "a name has two kinds", by: "TestCreate", edits: []edit{
		{"tags.go", "	case row.Kind != \"\" && row.Kind != t.Kind():", "	case false:"}}},
	{name: "a tag is created while the tags are lost", by: "TestCreate|TestTagsLost", edits: []edit{
		{"tags.go", "lost != nil && (!explicit || !errors.Is(lost, ErrTagsLost)) {", "lost != nil && !errors.Is(lost, ErrTagsLost) {"}}},
	{name: "a record of a newer version is replaced", by: "TestCreate", edits: []edit{
		{"tags.go", "(!explicit || errors.Is(damage, ErrNewer))", "!explicit"}}},
	{name: "a damaged record is replaced by one at 1", by: "TestCreate", edits: []edit{
		{"tags.go", "damage != nil && (!explicit || ", "damage != nil && ("}}},
	{name: "half a creation stays half when it is sent again", by: "TestOrderOfWrites", edits: []edit{
		{"tags.go", "		if errors.Is(err, ErrExists) && row.MaxID == 0 {", "		if false {"}}},
	{name: "rules that a generator remembers outlive a new tag", by: "TestCreateAgain", edits: []edit{
		{"tags.go", "		made.Rules = made.Rules.After(known.Rules) //", "		//"}}},
	{name: "a row that SQL makes meanwhile is an outage", by: "TestCreate", edits: []edit{
		{"tags.go", "	if errors.Is(err, ErrExists) { // SQL", "	if false { // SQL"}}},
	{name: "a new max_id is written into the record first", by: "TestOrderOfWrites", edits: []edit{
		{"tags.go", "		return t, a.cfg.Numbers.Raise(ctx, tag, end, c.Step, c.Description) // the row first: it is safe to repeat\n	}, nil)",
			"		_ = end\n		return t, nil\n	}, func(t Tag) error { return a.cfg.Numbers.Raise(ctx, tag, t.MaxID, c.Step, c.Description) })"}}},
	{name: "a change is based on rules that nobody obeys", by: "TestChangeOfOldRules", edits: []edit{
		{"tags.go", "			s.Rules = rules\n", ""}}},
	{name: "a typo is not asked for twice", by: "TestChange", edits: []edit{
		{"tags.go", "err == nil && !force {", "err == nil && false {"}}},
	{name: "a deletion forgets the row's end", by: "TestDelete", edits: []edit{
		{"tags.go", "max(row.MaxID, row.Mark)", "row.Mark"}}},
	{name: "a deletion forgets an older mark", by: "TestDelete", edits: []edit{
		{"tags.go", "max(row.MaxID, row.Mark)", "row.MaxID"}}},
	{name: "a deletion forgets what this generator knows", by: "TestDelete", edits: []edit{
		{"tags.go", "s.Delete(a.Seen(tag))", "s.Delete(0)"}}},
	{name: "a change is written on a record that was read long ago", by: "TestCommandsRace", edits: []edit{
		{"tags.go", "if apart(time.Now(), begun) > changeFresh {", "if begun.IsZero() {"}}},
	{name: "a change through a database that is far away is made again and again", by: "TestCommandsRace", edits: []edit{
		{"tags.go", "again != s || (err", "again == s || (err"}}},
	{name: "a change that another one has overtaken fails", by: "TestCommandsRace", edits: []edit{
		{"tags.go", "case !errors.Is(err, ErrConflict):\n			return Stored{}, err\n		case !pause", "case true:\n			return Stored{}, err\n		case !pause"}}},
	{name: "a change is not in force here", by: "TestChange", edits: []edit{
		{"tags.go", "			a.reconcile(Update{Stored: made}, true)\n			return made, nil", "			return made, nil"}}},
	{name: "a list comes before the tags are known", by: "TestList", edits: []edit{
		{"tags.go", "	if !a.listed.Load() {", "	if false {"}}},
	{name: "a list has tombstones", by: "TestList", edits: []edit{
		{"tags.go", "		case s.present() == nil:", "		default:"},
		{"index.go", "case q.Match(name) && !x.of[name].deleted:", "case q.Match(name):"}}},
}
