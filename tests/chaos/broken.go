package main

import "github.com/leafbus/leafbus/tests/chaos/programs"

// breakage is a fault that is put into the product on purpose. Chaos must find it: this shows that it would notice such
// a fault if somebody made it by mistake.
type breakage struct {
	name   string   // kebab-case, for -broken NAME
	why    string   // what the product does wrong then, and what a user loses
	edits  []edit   // of the product's files
	faults []string // the faults of the schedule that make it show; empty: load alone does
	stores []string // where it can show: jetstream, mysql
	checks []string // any of these may find it
}

// edit is an edit without the names of its fields in the list below.
type edit programs.Edit

// A breakage of strict or opaque tags shows with both stores, because these tags are in JetStream in any case.
var (
	bothStores = []string{"jetstream", "mysql"}
	jetStream  = []string{"jetstream"}
	inMySQL    = []string{"mysql"}
)

// breakages are the deliberate faults. Other protections must not hide one from callers. So some have several edits.
var breakages = []breakage{
	// Claims.
	{
		name: "unconditional-write",
		why:  "A claim replaces the tag's record whatever its revision is, so two generators hand out the same IDs.",
		edits: []edit{{"bus/kvstore/records.go",
			"data, jetstream.WithExpectLastSequencePerSubject(revision))", "data)"}},
		stores: bothStores, checks: []string{"twice", "order"},
	},
	{
		name: "unanswered-claim-counts",
		why:  "A claim that got no answer in time counts as done, so IDs that were never claimed are handed out.",
		edits: []edit{
			{"bus/kvstore/records.go",
				"	made, err := r.write(ctx, b, t.Name, data, jetstream.WithExpectLastSequencePerSubject(revision))\n",
				"	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)\n	defer cancel()\n" +
					"	made, err := r.write(short, b, t.Name, data, jetstream.WithExpectLastSequencePerSubject(revision))\n" +
					"	if err != nil && short.Err() != nil && revision > 0 {\n		return revision, nil\n	}\n"},
		},
		faults: []string{"lost-answers", "leader-freeze", "quorum-freeze"},
		stores: bothStores, checks: []string{"twice", "order", "end"},
	},
	{
		name: "claim-serves-later-requests",
		why:  "A claim of a strict tag serves requests that came after it was sent, so a later request gets a lower ID.",
		edits: []edit{
			{"allocator/strict.go", "if w.number >= p.before || w.n > ", "if w.n > "},
			{"allocator/strict.go", "	grant, err = a.ask(ctx, b.tag, p)\n",
				"	more := p\n	more.need += 8\n	grant, err = a.ask(ctx, b.tag, more)\n"},
		},
		faults: []string{"link-slow"},
		stores: bothStores, checks: []string{"order"},
	},
	{
		name: "lent-and-kept",
		why:  "A generator lends IDs to another one and keeps them, so both hand them out.",
		edits: []edit{
			{"bus/generator/lend.go", "		body, err = s.encode(ranges, wire.Request{})\n",
				"		l.alloc.Keep(req.Tag, ranges)\n		body, err = s.encode(ranges, wire.Request{})\n"},
			{"allocator/allocator.go", "// Seen is the end of all ranges", `// Keep puts IDs that were lent back into memory.
func (a *Allocator) Keep(tag string, ranges []Range) {
	b := a.lockedBuffer(tag)
	if b == nil {
		return
	}
	defer b.mu.Unlock()
	for _, r := range ranges {
		b.segments = append(b.segments, Segment{Range: r, Next: r.First})
	}
	b.trimLocked()
}

// Seen is the end of all ranges`},
		},
		faults: []string{"nats-kill", "nats-freeze", "link-slow", "db-hang", "db-kill", "restart"},
		stores: bothStores, checks: []string{"twice"},
	},

	// A store that went backwards, or lost its records.
	// A generator also notices that another one claims what it holds or used up last.
	{
		name: "marks-not-kept",
		why:  "A generator does not remember how far a tag was claimed, so a bucket that is set back repeats IDs.",
		edits: []edit{
			{"allocator/index.go", "	return x.of[tag].end\n", "	return min(x.of[tag].end, 0)\n"},
			{"allocator/index.go", "	if x.dirty != nil {\n", "	if false {\n"},
		},
		faults: []string{"restore"},
		stores: jetStream, checks: []string{"twice"},
	},
	{
		name: "database-behind-accepted",
		why:  "A database that is behind is not raised, so the IDs that it forgot are handed out again.",
		edits: []edit{
			{"allocator/refill.go", "	seen := a.Seen(tag)\n	grant, err :=", "	seen := min(a.Seen(tag), 1)\n	grant, err :="},
			{"allocator/claims.go", "s.Step, max(s.MaxID, from))", "s.Step, 1)"},
			{"allocator/claims.go", ".check(max(s.MaxID, from))", ".check(1)"},
			{"allocator/claims.go", "if claim.First < c.cfg.Index.End(s.Name) {", "if false {"},
			{"allocator/record.go", "	if c.First < t.MaxID {", "	if false {"},
		},
		faults: []string{"db-failover", "db-back", "db-split", "op-sql"},
		stores: inMySQL, checks: []string{"twice"},
	},
	{
		name: "wrong-server-accepted",
		why:  "A generator forgets its installation, and begins a new one at 1 on an empty NATS.",
		edits: []edit{{"bus/installation/member.go",
			"if m.known, m.store, err = c.Folder", "if _, m.store, err = c.Folder"}},
		faults: []string{"wrong-server", "op-create"},
		stores: jetStream, checks: []string{"twice", "installation"},
	},

	// What operators set.
	{
		name: "floor-not-applied",
		why:  "A new max_id does not drop the IDs in memory below it, so callers get IDs that an operator has ruled out.",
		edits: []edit{{"allocator/buffer.go",
			"	b.floor = floor\n	b.trimLocked()\n", "	b.floor = floor\n"}},
		faults: []string{"op-change", "op-advance"},
		stores: bothStores, checks: []string{"floor", "deleted"},
	},
	{
		name: "command-does-not-wait",
		why:  "A command returns before the other generators have applied it, so callers get IDs that it ruled out.",
		edits: []edit{{"bus/generator/exchange.go",
			"return len(silent) == 0 && err == nil", "silent = nil\n		return err == nil"}},
		faults: []string{"op-change", "op-pause", "op-limit", "op-delete", "link-slow"},
		stores: bothStores, checks: []string{"floor", "paused", "limit", "deleted"},
	},
	{
		name: "no-gate-after-a-silence",
		why:  "A generator that stood still serves before it has asked what operators set: IDs below a new max_id.",
		edits: []edit{
			{"bus/generator/away.go", "	return isAway && g == gateNATS || a.lessons[theRecords].shut(now)\n", "	return false\n"},
			{"bus/generator/away.go", "	if lasted > tooOld {", "	if false {"}, // else hardly any request is left
		},
		faults: []string{"op-frozen"},
		stores: bothStores, checks: []string{"floor"},
	},
	{
		name: "limit-not-applied",
		why:  "The last range of a tag may pass its limit, so callers get IDs above it.",
		edits: []edit{
			{"allocator/claims.go", "min(max(p.n, s.Step), left/leftShare)", "max(p.n, s.Step, left-left)"},
			{"allocator/record.go", "	c.Last = min(c.Last, t.end()-1)\n", ""},
			{"allocator/buffer.go", "max(s.Next, b.floor), min(s.Last, end-1)", "max(s.Next, b.floor), max(s.Last, end-end)"},
		},
		faults: []string{"op-limit"},
		stores: bothStores, checks: []string{"limit"},
	},
	{
		name: "paused-from-memory",
		why:  "A paused tag is served from memory, so callers get IDs after an operator stopped them.",
		edits: []edit{{"allocator/ruled.go",
			"	case r.Paused:\n		return ErrPaused\n", ""}},
		faults: []string{"op-pause"},
		stores: bothStores, checks: []string{"paused"},
	},
	{
		name: "deleted-from-memory",
		why:  "A deleted tag is served from memory, so callers get IDs of a tag that does not exist.",
		edits: []edit{
			{"allocator/tag.go", "	if t.Deleted {\n		return t.MaxID\n	}\n", ""},
			{"allocator/reconcile.go", "	b.mu.Unlock()\n	if s.Deleted {\n", "	b.mu.Unlock()\n	if false {\n"},
		},
		faults: []string{"op-delete"},
		stores: bothStores, checks: []string{"deleted"},
	},
	{
		name: "deletion-forgets-the-end",
		why:  "A tag that is deleted and made again begins at 1, so all its IDs come again.",
		edits: []edit{
			{"allocator/tag.go", "	if t.Deleted {\n		return t.MaxID\n	}\n", ""},
			{"allocator/index.go",
				"s.Revision, s.Step, s.Deleted, x.pass\n",
				"s.Revision, s.Step, s.Deleted, x.pass\n		if s.Deleted {\n			e.end = 0\n		}\n"},
			{"allocator/record.go", "max(t.MaxID, s.MaxID, known, 1), s.Last, false",
				"max(t.MaxID, min(known, 1)), s.Last, false"},
		},
		faults: []string{"op-delete", "op-create"},
		stores: jetStream, checks: []string{"twice", "deleted"},
	},
	{
		name: "opaque-key-of-each-run",
		why:  "Each run of a generator has its own key of an opaque tag, so IDs repeat and reveal shows wrong numbers.",
		edits: []edit{
			{"bus/kvstore/keys.go", "opaque.New(d, opaque.DeriveKey(k.master, tag, d))",
				"opaque.New(d, opaque.DeriveKey(opaque.NewMaster(), tag, d))"},
			{"bus/kvstore/keys.go", "p != nil && p.KeyID() == t.KeyID && ", "p != nil && "},
		},
		stores: bothStores, checks: []string{"twice", "domain", "reveal"},
	},

	// Snowflakes.
	{
		name: "worker-not-in-the-id",
		why:  "Generators leave their worker out of snowflakes, so two of them issue the same ones.",
		edits: []edit{{"snowflake/issue.go",
			"Parts{g.seq.ms, g.worker.held.Worker, g.seq.next}", "Parts{g.seq.ms, 0, g.seq.next}"}},
		faults: []string{"restart"},
		stores: bothStores, checks: []string{"twice"},
	},
	{
		name: "worker-given-twice",
		why:  "The registry gives a worker that is held, so two generators issue the same snowflakes for seconds.",
		edits: []edit{
			{"bus/kvstore/workers.go", "rand.Int64N(max(1, n)); i < n", "int64(rand.N(1)); i < n"},
			{"bus/kvstore/workers.go", "if listed[r.Worker] || !c.Allows(r.Worker) {", "if false {"},
			{"bus/kvstore/workers.go",
				"b.put(ctx, workerKey(r.Worker), value, version)", "b.send(ctx, workerKey(r.Worker), value)"},
		},
		faults: []string{"restart"},
		stores: jetStream, checks: []string{"twice"},
	},
	{
		name:   "clock-ahead-trusted",
		why:    "A clock that steps ahead is trusted, so no snowflakes come for hours after it is set right.",
		edits:  []edit{{"snowflake/clock.go", "if ahead > g.tolerance {", "if false {"}},
		faults: []string{"clock-ahead"},
		stores: bothStores, checks: []string{"ready"},
	},

	// What operators see.
	{
		name: "lost-alert-never-ends",
		why:  "The alert about a lost generator stays when it is back, so operators look for a fault that is over.",
		edits: []edit{{"bus/generator/lost.go",
			"		if !ok {\n", "		if !ok || end {\n"}},
		faults: []string{"kill", "freeze"},
		stores: bothStores, checks: []string{"alert"},
	},
	{
		name: "refill-alert-never-ends",
		why:  "The alert about refills that fail stays when they succeed, so operators look for a fault that is over.",
		edits: []edit{{"allocator/alarms.go",
			"		if b.alerts[episode] {\n", "		if b.alerts[episode] && episode != refillFailed {\n"}},
		faults: []string{"db-kill", "db-readonly", "nats-kill", "nats-freeze"},
		stores: bothStores, checks: []string{"alert"},
	},
	{
		name:   "always-ready",
		why:    "A generator says that it is ready whatever it lacks, so load balancers send it requests that fail.",
		edits:  []edit{{"bus/generator/state.go", "	r.Ready = len(r.Missing) == 0\n", "	r.Ready = true\n"}},
		faults: []string{"link-cut", "link-silent", "nats-freeze", "db-kill"},
		stores: bothStores, checks: []string{"ready"},
	},
	{
		name: "reported-range-too-long",
		why:  "The event of a refill has one ID too many, so the audit reports IDs as claimed twice that were not.",
		edits: []edit{{"allocator/refill.go",
			"a.cfg.Notify(Refilled{Tag: b.tag, Range: grant.Range,",
			"a.cfg.Notify(Refilled{Tag: b.tag, Range: Range{grant.First, grant.Last + 1},"}},
		stores: bothStores, checks: []string{"audit"},
	},
	{
		name: "reconnect-leaks",
		why:  "Each reconnect leaves eight watches open, so a generator that runs for weeks uses up its memory.",
		edits: []edit{{"bus/kvstore/session.go",
			"	messages, inbox := make(chan *nats.Msg), conn.NewInbox()\n",
			"	messages, inbox := make(chan *nats.Msg), conn.NewInbox()\n	for range 8 {\n" +
				"		_, _ = conn.Subscribe(conn.NewInbox(), func(*nats.Msg) {})\n	}\n"}},
		faults: []string{"link-cut", "link-silent", "nats-kill", "nats-freeze"},
		stores: bothStores, checks: []string{"leak"},
	},
}
