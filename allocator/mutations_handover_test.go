//go:build mutations

package allocator_test

var handOverMutations = []mutation{
	{name: "what is handed over stays in memory", by: "TestHandOver", edits: []edit{{"handover.go",
		"			b.segments = nil\n", ""}}},
	{name: "what was handed over is dropped at a late claim", by: "TestHandOver", edits: []edit{{"buffer.go",
		"overlaps := s.overlaps(r, run)", "overlaps := s.Overlaps(r)"}}},
	{name: "what was handed over and used is an alert at a late claim", by: "TestHandOver", edits: []edit{{"buffer.go",
		"if b.spent.overlaps(r, run) {", "if b.spent.Overlaps(r) {"}}},
	{name: "what was handed over is not dropped at another claim", by: "TestHandOver", edits: []edit{{"buffer.go",
		"(s.Run == \"\" || s.Run != run)", "s.Run == \"\""}}},
	{name: "the newest IDs that were handed over come first", by: "TestHandOver", edits: []edit{{"handover.go",
		"return cmp.Compare(x.First, y.First)", "return cmp.Compare(y.First, x.First)"}}},
	{name: "a range that goes on counts as a claim of its giver", by: "TestHandOverKeepsTheClaim", edits: []edit{{"handover.go",
		"cmp.Or(s.Run, a.cfg.Run)", "cmp.Or(a.cfg.Run, s.Run)"}}},
	{name: "a range that is handed over twice is used twice", by: "TestAccept", edits: []edit{{"handover.go",
		"here || b.spent.Overlaps(g.ids()) ||", "here ||"}}},
	{name: "IDs that are handed over are below an operator's max_id", by: "TestAccept", edits: []edit{{"handover.go",
		"	b.trimLocked()\n	n += b.leftLocked()", "	b.floor = 0\n	b.trimLocked()\n	n += b.leftLocked()"}}},
	{name: "IDs are handed over to a tag that has left memory", by: "TestAcceptWhileATagIsEvicted", edits: []edit{{"handover.go",
		"	if b.gone || b.strict != nil ||", "	if b.strict != nil ||"}}},
	{name: "IDs are handed over to a generator that has stopped", by: "TestAccept", edits: []edit{{"handover.go",
		"	if b.gone || b.strict != nil || a.ctx.Err() != nil {", "	if b.gone || b.strict != nil {"}}},
	{name: "more and more ranges are handed over", by: "TestAcceptIsBounded", edits: []edit{{"handover.go",
		" || len(b.segments) >= mostSegments {", " {"}}},
	{name: "what was handed over is not marked", by: "TestAcceptIsBounded", edits: []edit{{"handover.go",
		"			a.cfg.Index.Observe(g.Tag, given.Last+1)\n", "			_ = given\n"}}},
	{name: "what is handed over is not compared with memory", by: "TestAcceptWhatIsClaimed", edits: []edit{{"handover.go",
		"return a.overlap(g.Tag, given.ids(), given.Run)", "return false"}}},
	{name: "an old record makes room", by: "TestRoomByAnOldRecord", edits: []edit{{"handover.go",
		"a.reconcile(Update{Stored: s}, true)", "a.apply(s, true)"}}},
}
