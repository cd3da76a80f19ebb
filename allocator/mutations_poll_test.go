//go:build mutations

package allocator_test

// pollMutations break what keeps rows and records equal, P1 to P6.
var pollMutations = []mutation{
	{name: "P1: a new row waits for its first request", by: "TestPoll", edits: []edit{
		{"poll.go", "		question = append(question, unknown...)\n", ""}}},
	{name: "P1: what was known before a loss has no record", by: "TestTagsLost", edits: []edit{
		{"index.go", "			e.revision, e.deleted = 0, false\n", ""}}},
	{name: "P1: a tag of which the records were set back has none", by: "TestPoll", edits: []edit{
		{"reconcile.go", "		a.refreshed.Store(false)\n", ""}}},
	{name: "P2: a row that is missing once is gone", by: "TestPoll", edits: []edit{
		{"poll.go", "		if now.Sub(since) >= goneFor && !doubted {", "		if !doubted {"}}},
	{name: "P2: a tag whose row is gone stays", by: "TestPoll", edits: []edit{
		{"poll.go", "			question = append(question, name)\n		}\n	}\n	p.warn", "		}\n	}\n	p.warn"}}},
	{name: "P2: a row that is gone leaves no mark", by: "TestPoll", edits: []edit{
		{"poll.go", "		if err := p.cfg.Numbers.Mark(ctx, name, end, KindTrend); err != nil {\n			return err\n		}\n", ""}}},
	{name: "P2: a row that SQL made again is removed", by: "TestRowIsBack", edits: []edit{
		{"poll.go", "p.cfg.Numbers.Mark(ctx, name, end, KindTrend); err != nil {", "p.cfg.Numbers.Remove(ctx, name, end, KindTrend); err != nil {"}}},
	{name: "P2: a creation that is under way is undone", by: "TestNewTagWithoutRow", edits: []edit{
		{"poll.go", "goneFor = 10 *", "goneFor = 8 *"}}},
	{name: "P2: a creation cannot end while the database is away", by: "TestNewTagWithoutRow", edits: []edit{
		{"poll.go", "			clear(p.missing)\n		}\n		cancel()", "		}\n		cancel()"}}},
	{name: "P2: a table that was emptied removes all tags", by: "TestDoubt", edits: []edit{
		{"poll.go", "doubted := len(gone)+rows >= fewRows && len(gone) > rows", "doubted := false"}}},
	{name: "P2: rows of others in the place of all rows end the doubt", by: "TestDoubt", edits: []edit{
		{"poll.go", "			unknown = append(unknown, r.Name)\n",
			"			unknown = append(unknown, r.Name)\n			rows++\n"}}},
	{name: "P2: a few rows cannot be removed", by: "TestDoubt", edits: []edit{
		{"poll.go", "doubted := len(gone)+rows >= fewRows && ", "doubted := "}}},
	{name: "P2: a generator is ready though it doubts the table", by: "TestDoubt", edits: []edit{
		{"poll.go", "p.polled.Store(err == nil && !p.doubted)", "p.polled.Store(err == nil)"}}},
	{name: "P3: a row of a tombstone is not served", by: "TestPoll", edits: []edit{
		{"poll.go", "		t.Deleted, t.Step, t.Updated = false, row.Step, Now()\n", ""}}},
	{name: "P3: a tag is alive below what was in use", by: "TestPoll", edits: []edit{
		{"poll.go", "		end = max(end, row.MaxID, row.Mark)\n", "		end = row.MaxID\n"}}},
	{name: "P3: no floor keeps old ranges from being used", by: "TestPoll", edits: []edit{
		{"poll.go", "		t = t.Rise(end, end)\n", "		t = t.Rise(end, 0)\n"}}},
	{name: "P4: a range that is about to be claimed is skipped", by: "TestPoll", edits: []edit{
		{"poll.go", "if was, ok := p.ahead[r.Name]; ok && was > e.end {", "if true {"},
		{"poll.go", "	was := p.ahead\n", "	was := ahead\n"}}},
	{name: "P4: the record rises to the present reading", by: "TestPollRises", edits: []edit{
		{"poll.go", "t.Rise(min(ahead, row.MaxID), 0)", "t.Rise(row.MaxID, 0)"}}},
	{name: "P4: the record does not rise", by: "TestPoll", edits: []edit{
		{"poll.go", "t.Rise(min(ahead, row.MaxID), 0)", "t.Rise(0, 0)"}}},
	{name: "P5: a database that went backwards stays", by: "TestPoll", edits: []edit{
		{"poll.go", "		if row.MaxID < end { // P5", "		if false { // P5"}}},
	{name: "P5: the row is raised to the record, not to what is known", by: "TestPoll", edits: []edit{
		{"poll.go", "	end := max(s.MaxID, p.cfg.Index.End(name)) //", "	end := s.MaxID //"}}},
	{name: "P5: a database that went backwards is no alert", by: "TestPollAlerts", edits: []edit{
		{"poll.go", "			p.cfg.Notify(Regressed{Tag: name, Got: row.MaxID, Seen: end, Action: Advanced})\n", ""}}},
	{name: "P5: what is known is read after the row", by: "TestPollLooksAgain", edits: []edit{
		{"poll.go", "	end := max(s.MaxID, p.cfg.Index.End(name)) //", "	end := s.MaxID //"},
		{"poll.go", "	t := s.Tag\n	switch {", "	end = max(end, p.cfg.Index.End(name))\n	t := s.Tag\n	switch {"}}},
	{name: "P6: a mark keeps another kind", by: "TestPoll", edits: []edit{
		{"poll.go", "r.Mark < e.end || r.Kind != e.order.kind() {", "r.Mark < e.end {"}}},
	{name: "P6: a mark stays below what is in use", by: "TestPoll", edits: []edit{
		{"poll.go", "r.Mark < e.end || r.Kind", "r.Kind"}}},
	{name: "P6: a strict tag without a mark has none", by: "TestPoll", edits: []edit{
		{"poll.go", "	question = append(question, unmarked...)\n", "	_ = unmarked\n"}}},
	{name: "P6: a strict tag whose name has a row has no mark", by: "TestPoll", edits: []edit{
		{"poll.go", "e.order != indexedTrend || e.deleted && !isRow; known", "(e.order != indexedTrend || e.deleted) && !isRow; known"}}},
	{name: "a row with a strict tag's name is no alert", by: "TestPollAlerts", edits: []edit{
		{"poll.go", "			p.cfg.Notify(Shadowed{name})\n", ""}}},
	{name: "the alert of a row with a strict tag's name has no end", by: "TestPollAlerts", edits: []edit{
		{"poll.go", "			p.cfg.Notify(Recovered{name, \"shadowed\"})\n", ""}}},
	{name: "every generator polls", by: "TestPollLeads", edits: []edit{
		{"poll.go", "		case !leads: //", "		case !leads && false: //"}}},
	{name: "what was seen before the lead changed counts", by: "TestPollLeads", edits: []edit{
		{"poll.go", "			clear(p.missing)\n			p.shadow(nil)\n", "			p.shadow(nil)\n"}}},
	{name: "a poll that failed is a success", by: "TestPollFails", edits: []edit{
		{"poll.go", "			failed.Store(&err)\n", ""}}},
	{name: "a database that is not this installation's is polled", by: "TestPollFails", edits: []edit{
		{"poll.go", "		err := p.cfg.Numbers.Check(ctx)\n", "		var err error\n"}}},
	{name: "a step that SQL changes is ignored", by: "TestPolledStep", edits: []edit{
		{"poll.go", "		t.Step = row.Step\n", ""}}},
}
