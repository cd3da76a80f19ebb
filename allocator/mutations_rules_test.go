//go:build mutations

package allocator_test

// rulesMutations are about the rules that an operator sets for a tag.
var rulesMutations = []mutation{
	// Limit.
	{name: "the first ID above the limit is handed out", by: "TestLimit|TestLimitCutsMemory", edits: []edit{{"rules.go",
		"	return r.Limit + 1\n", "	return r.Limit + 2\n"}}},
	{name: "what is in memory above a new limit is handed out", by: "TestLimitCutsMemory", edits: []edit{{"ruled.go",
		"		b.trimLocked()\n		b.emptyWaitersLocked() // they", "		b.emptyWaitersLocked() // they"}}},
	{name: "a claim above the limit is used", by: "TestClaimsUnderRules", edits: []edit{{"claim.go",
		"		r.Last = min(last, e.Rules.end()-1)\n", "		_ = last\n"}}},
	{name: "a claim ignores the rules of the ledger", by: "TestClaimsUnderRules", edits: []edit{{"claim.go",
		"	if e.Rules.Paused {", "	if true {\n		return nil\n	}\n	if e.Rules.Paused {"}}},
	{name: "strict IDs above a new limit are handed out", by: "TestLimitCutsAClaim", edits: []edit{{"strict.go",
		" || grant.Last >= b.rulesLocked().end() {", " {"}}},
	{name: "a claim stays cut at a limit that was known before", by: "TestClaimAfterTheLimit", edits: []edit{{"claim.go",
		"r.Last = min(last, ", "r.Last = min(r.Last, "}}},
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
		"b.regressed != nil, b.rulesLocked().Paused:", "b.regressed != nil:"}}},

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
	{name: "older rules replace newer ones", by: "TestPausedByAnOldRecord", edits: []edit{{"ruled.go",
		"	if r.Version <= old.Version {", "	if r.Version == old.Version {"}}},
	{name: "a change after a restore has an older version", by: "TestRulesVersions|TestRulesWith", edits: []edit{{"rules.go",
		"max(r.Version+1, time.Now().UnixMilli())", "r.Version+1"}}},

	// How long memory lasts.
	{name: "a tag's outlast is ignored", by: "TestOutlast", edits: []edit{{"ruled.go",
		"cmp.Or(time.Duration(r.Outlast), cfg.Outlast)", "cfg.Outlast"}}},
	{name: "a tag's largest step is ignored", by: "TestOutlast", edits: []edit{{"ruled.go",
		"cmp.Or(r.MaxStep, cfg.MaxStep)", "cfg.MaxStep"}}},
}
