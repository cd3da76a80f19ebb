//go:build mutations

package allocator_test

// rulesMutations are about the rules that an operator sets for a tag.
var rulesMutations = []mutation{
	// Limit.
	{name: "the first ID above the limit is handed out", by: "TestLimit|TestLimitCutsMemory", edits: []edit{{"rules.go",
		"	return r.Limit + 1\n", "	return r.Limit + 2\n"}}},
	{name: "what is in memory above a new limit is handed out", by: "TestLimitCutsMemory", edits: []edit{{"ruled.go",
		"	if r.Limit != old.Limit {\n		b.trimLocked()", "	if r.Limit != old.Limit {"}}},
	{name: "strict IDs above a new limit are handed out", by: "TestLimitCutsAClaim", edits: []edit{{"strict.go",
		" || grant.Last >= b.rulesLocked().end() {", " {"}}},
	{name: "a typo in SQL exhausts a tag", by: "TestRowBeyondTheLimit", edits: []edit{{"claims.go",
		"if !errors.Is(err, ErrExhausted) || s.Left(s.MaxID) == 0 {", "if true {"}}},
	{name: "a tag whose limit was removed stays exhausted", by: "TestExhaustedGoesOn", edits: []edit{{"ruled.go",
		"	b.exhausted = false // the limit by", "	b.exhausted = b.exhausted && r.Limit == old.Limit // the limit by"}}},
	{name: "an old record exhausts a tag", by: "TestExhaustedGoesOn", edits: []edit{{"claims.go",
		" || s.Version < rules.Version", " || s.Version < rules.Version && end < 0"}}},
	{name: "a tag is exhausted by a limit that an operator has raised meanwhile", by: "TestLimitRaisedMeanwhile", edits: []edit{{"refill.go",
		"	if b.rulesLocked().Version != p.rules {", "	if false {"}}},
	{name: "the alert comes at 90 %", by: "TestEndingAt80Percent", edits: []edit{{"rules.go",
		"last-last/5", "last-last/10"}}},

	// Typos.
	{name: "max_id jumps as far as a typo can", by: "TestCheckLoss", edits: []edit{{"tag.go",
		"	case jump > MostJump, jump > left/2:", "	case jump > left/2:"}}},
	{name: "max_id jumps to the end of a limit", by: "TestCheckLoss", edits: []edit{{"tag.go",
		"	case jump > MostJump, jump > left/2:", "	case jump > MostJump:"}}},
	{name: "a limit below max_id is set", by: "TestCheckLoss", edits: []edit{{"tag.go",
		"	case c.Limit != nil && t.Left(t.MaxID) == 0:", "	case false:"}}},

	// Pause.
	{name: "a paused tag is served from memory", by: "TestPause", edits: []edit{{"ruled.go",
		"	case r.Paused:\n		return ErrPaused\n", ""}}},
	{name: "requests that wait are not refused by a pause", by: "TestPause", edits: []edit{{"ruled.go",
		"		b.refuseLocked(ErrPaused)\n", ""}}},
	{name: "a paused tag is refilled", by: "TestPausedWhileTheStoreIsAway", edits: []edit{{"plan.go",
		"	case b.rulesLocked().Paused:\n		return plan{}, false", "	case false:\n		return plan{}, false"}}},

	// Quota.
	{name: "a quota is never used up", by: "TestQuota", edits: []edit{{"ruled.go",
		"		b.rules.tokens -= float64(n)\n", ""}}},
	{name: "each generator has the whole quota", by: "TestQuotaShares", edits: []edit{{"ruled.go",
		"float64(r.Quota.PerSecond)/float64(sharers)", "float64(r.Quota.PerSecond)"}}},
	{name: "tokens grow beyond the burst", by: "TestQuota", edits: []edit{{"ruled.go",
		"*max(now.Sub(r.at), 0).Seconds(), most)", "*max(now.Sub(r.at), 0).Seconds(), 1000*most)"}}},
	{name: "a batch above the burst waits for ever", by: "TestQuotaLargeRequest", edits: []edit{{"ruled.go",
		"	if n > r.Quota.Burst {", "	if false {"}}},

	// Versions.
	{name: "older rules replace newer ones", by: "TestPausedByAnOldRecord|TestMerge", edits: []edit{{"ruled.go",
		"|| r.Version < old.Version ||", "||"}}},

	// How long memory lasts.
	{name: "a tag's outlast is ignored", by: "TestOutlast", edits: []edit{{"plan.go",
		"cmp.Or(time.Duration(b.rulesLocked().Outlast), cfg.Outlast)", "cmp.Or(0, cfg.Outlast)"}}},
}
