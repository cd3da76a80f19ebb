//go:build mutations

package generator_test

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

type edit = mutate.Edit

// TestMutations demands that a test finds each of these changes, which break a promise. It checks the tests, not the
// code:
// `make mutations`.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name  string
		by    string // the test that finds it
		edits []edit
	}{
		// Replies.
		{"a reply loses all IDs but the first run", "TestReplyTooLarge", []edit{{"issuer.go",
			"bus.AppendReply(nil, ranges, req.JSON)", "bus.AppendReply(nil, ranges[:1], req.JSON)"}}},
		{"a request that waited is answered twice", "TestWaitingLeavesTheCallback", []edit{{"issuer.go",
			"		case err == nil:\n			s.succeed(reply, a, tag, req, ranges)\n		case !s.askOthers(",
			"		case err == nil:\n			s.succeed(reply, a, tag, req, ranges)\n			s.succeed(reply, a, tag, req, ranges)\n		case !s.askOthers("}}},
		{"a request that is answered later loses its answer", "TestWaitingLeavesTheCallback", []edit{{"issuer.go",
			"	s.g.respondMsg(idsMessage(reply, s.g.Order(tag), body))\n", "	_ = body\n"}}},
		{"a request without a reply takes IDs", "TestNoReplyNoID", []edit{{"issuer.go",
			"	if !answerable(reply) {\n		return // no caller would get the IDs",
			"	if false {\n		return // no caller would get the IDs"}}},
		{"an answer becomes a record in JetStream", "TestAnswersGoToInboxes", []edit{{"answer.go", "reply[0] != '$'", "true"}}},
		{"an answer becomes a request", "TestAnswersGoToInboxes", []edit{{"answer.go", `!strings.HasPrefix(reply, "leaf.")`, "true"}}},
		{"an answer of a strict tag does not say so", "TestStrictAnswers", []edit{{"answer.go",
			"	if order == allocator.Strict {", "	if false {"}}},
		{"callers read the cause of an outage", "TestCausesAreNotForCallers", []edit{{"errors.go",
			"	case bus.StoreUnavailable:\n", "	case \"\":\n"}}},
		{"callers read why there is no worker", "TestCausesAreNotForCallers", []edit{{"errors.go",
			"	case bus.NoWorkerID:\n", "	case \"\":\n"}}},

		// Subscriptions.
		{"a generator that NATS lets answer nobody is ready", "TestStartWithoutSubscriptions", []edit{{"serve.go",
			"	if err := g.mayAnswer(); err != nil {", "	if false {"}}},
		{"a start goes on without a subscription", "TestStartWithoutSubscriptions", []edit{{"subscriptions.go",
			"	if errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {", "	if false && errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {"}}},
		{"a generator that lost a subscription stays in the queue group", "TestRefusedSubscriptionLater", []edit{{"issuer.go",
			"cmp.Or(s.g.deaf(), s.healthy())", "s.healthy()"}, {"issuer.go", "	\"cmp\"\n", ""}}},
		{"a generator that lost a subscription is ready", "TestRefusedSubscriptionLater", []edit{{"state.go",
			"	case g.deaf() != nil:", "	case false:"}}},

		// A stop.
		{"a stop does not wait for requests that were accepted", "TestDrainIsHeard", []edit{
			{"heartbeat.go", "		g.requests.wait(ctx)\n	}\n}", "	}\n}"},
			{"generator.go",
				"		g.requests.wait(ctx)\n", ""}}},
		{"requests that came before a stop are refused", "TestDrainSnowflakes", []edit{{"heartbeat.go",
			"		case <-g.probe(ctx): // what came before is accepted\n", "		default:\n"}}},
		{"a generator that ends says goodbye before its last answers", "TestDrainIsHeard", []edit{{"generator.go",
			"	g.phase.draining.Store(true)\n	g.sendHeartbeat(false)\n	heartbeats := background(g.sendHeartbeats)\n",
			"	g.phase.draining.Store(true)\n	g.sendHeartbeat(true)\n	heartbeats := background(func(context.Context) {})\n"}}},

		// What an operator says.
		{"a change that the store cannot do is not passed on", "TestPassAdmin", []edit{{"passadmin.go",
			"	if r.passed || !isAway(failure) {", "	if true {"}}},
		{"a change that may have happened is passed on", "TestPassAdmin", []edit{{"passadmin.go",
			"e.Reason == bus.StoreUnavailable ||", "e.Reason == bus.StoreUnavailable || e.Reason == bus.TimedOut ||"}}},
		{"a store that hangs leaves no time to pass a change on", "TestPassAdmin", []edit{{"passadmin.go",
			"time.Until(end)/2)", "time.Until(end))"}}},
		{"a typo is carried out", "TestAdministerRules", []edit{{"tags.go",
			"err == nil && !force {", "false {"}}},
		{"a generator confirms a new max_id and hands out IDs below", "TestMaxIDMovesEverywhere",
			[]edit{{"broadcast.go",
				"	answer := g.apply(t)\n", "	answer := tagAnswer{g.group.self, g.alloc.Seen(t.Name)}\n"}}},
		{"a generator confirms a pause and hands out IDs", "TestRulesAreInForce", []edit{{"broadcast.go",
			"	answer := g.apply(t)\n", "	t.Paused = false\n	answer := g.apply(t)\n"}}},
		{"a change does not wait for the peers", "TestDeleteIsNotConfirmed", []edit{{"broadcast.go",
			"		case len(nodes) > 0:", "		case false:"}}},
		{"a generator that was cut off never asks", "TestFloorsUnknown", []edit{{"floors.go",
			"	return g.cfg.Store.Floors(ctx, g.alloc.Raise)\n", "	return nil\n"}}},
		{"advance forgets what a peer knows", "TestAdvanceToWhatAPeerKnows", []edit{{"broadcast.go",
			"				seen = max(seen, a.Seen)\n", ""}}},
		{"advance does not ask the events", "TestAdvanceToWhatAnEventKnows", []edit{{"advance.go",
			"func(_ string, end int64) { seen = max(seen, end) }", "func(string, int64) {}"}}},
		{"a lost tag begins below what a peer knows", "TestLostTagThatAPeerKnows", []edit{{"known.go",
			"		seen, _, err = g.broadcastTag(", "		_, _, err = g.broadcastTag("}}},
		{"a lost tag begins below what an event knows", "TestLostTagThatAnEventKnows", []edit{{"known.go",
			"func(_ string, end int64) { seen = max(seen, end) }", "func(string, int64) {}"}}},
		{"a lost strict tag begins where nobody knows", "TestLostTagThatAnEventKnows", []edit{{"tags.go",
			"	case t.Order == allocator.Strict && t.MaxID <= 1: //", "	case false: //"}}},
		{"a change is carried out though its sender has given up", "TestTooLate", []edit{{"endpoint.go",
			"end := now.Add(patience -", "end := now.Add(max(patience, time.Minute) -"}}},

		// IDs of another generator.
		{"IDs of another generator are below a new max_id", "TestLentIDs", []edit{{"borrow.go",
			"if r.First < below || rules.Paused ||", "if rules.Paused ||"}}},
		{"IDs of another generator are above the limit", "TestLentIDs", []edit{{"borrow.go",
			" || rules.Left(r.Last) == 0 {", " {"}}},
		{"IDs of a strict tag are below what was handed out", "TestLentIDs", []edit{{"borrow.go",
			"below := g.alloc.Seen(tag)", "below := min(g.alloc.Seen(tag), 0)"}}},
		{"another generator gives another number of IDs", "TestLentIDs",
			[]edit{{"borrow.go", "	if left != 0 {", "	if false {"}}},
		{"a generator of another installation offers IDs", "TestAnotherInstallationIsNotAsked", []edit{{"borrow.go",
			"	case q.Installation != g.installation() || !g.phase", "	case !g.phase"}}},
		{"requests are passed on to another installation", "TestClaimer", []edit{{"borrow.go",
			" && b.Installation == g.installation() {", " {"}}},
		{"numbers of an opaque tag are handed out as they are", "TestNumbersWithoutTheKey", []edit{{"borrow.go",
			"if err := g.cfg.Keys.Load(ctx, t); err != nil {", "if err := g.cfg.Keys.Load(ctx, t); false {"}}},
		{"a second master key is made beside a generator that knows opaque tags", "TestMasterIsLost", []edit{{"keys.go",
			"if b.Opaque && ", "if false && "}}},
		{"nobody says that the keys are lost", "TestMasterIsLost", []edit{{"state.go",
			"why := g.keysErr.Load(); why != nil", "why := g.keysErr.Load(); false"}}},
		{"no other generator is asked", "TestDryGeneratorAsksAnother", []edit{{"borrow.go",
			"	return now.Sub(a.begun) < borrowWithin &&", "	return false && now.Sub(a.begun) < borrowWithin &&"}}},
		{"a refused command counts as a refused caller", "TestPassAdmin", []edit{{"answer.go",
			"	if a.Kind == AdminKind {\n		return e\n	}\n	g.counts", "	g.counts"}}},
		{"a caller that another generator serves raises the alert of refused callers", "TestStarvedIsRefused", []edit{{"issuer.go",
			"	if err != nil && ctx.Err() == nil && lacksIDs(err) {\n",
			"	if err != nil && ctx.Err() == nil && lacksIDs(err) {\n		s.g.alloc.Refused(tag, err)\n"}}},
		{"a generator that is asked for IDs raises the alert of refused callers", "TestStarvedIsRefused", []edit{{"borrow.go",
			"		if err != nil {\n			g.respondMsg(", "		if err != nil {\n			g.alloc.Refused(req.Tag, err)\n			g.respondMsg("}}},

		// Peers.
		{"a range of another generator is not noted", "TestStoreWentBackwards", []edit{{"reserved.go",
			"		g.alloc.Reserved(r.Tag, allocator.Range{First: r.First, Last: r.End - 1})\n", ""}}},
		{"a peer that is silent is never lost", "TestLostAlert",
			[]edit{{"lost.go", "lostAfter = 5 *", "lostAfter = 500 *"}}},
		{"a generator that is deaf takes its peers for lost", "TestLostNotByADeafGenerator", []edit{{"lost.go",
			"now.Sub(l.heard) >= lostAfter && now.Sub(steady) >= lostAfter {",
			"now.Sub(l.heard) >= lostAfter && !steady.IsZero() {"}}},
		{"a generator that cannot serve stays in the queue group", "TestStepsAsideAndComesBack", []edit{{"issuer.go",
			"since, bad := s.health.bad(now)\n", "since, bad := now, false\n"}}},
		{"a slow disk makes snowflakes wait", "TestSlowDisk", []edit{{"issuer.go",
			"s.healthy() == nil && !s.g.flakes.State().Blocked {", "s.healthy() == nil {"}}},
		{"a generator comes and goes with a slow disk", "TestHealth", []edit{{"health.go",
			"unhealthy || now.Sub(h.healthySince) < returnAfter", "unhealthy"}}},
		{"a generator that is alone leaves the queue group", "TestAllSickStay", []edit{{"issuer.go",
			" && s.g.group.anyPeer(now, since, s.offers)\n", " && !since.After(now)\n"}}},
		{"an installation is created beside a witness of another", "TestMayCreate", []edit{{"identity.go",
			"		if b.Witness != \"\" {", "		if false {"}}},
		{"an installation is created though a route may lead to a witness", "TestMayCreate", []edit{{"identity.go",
			"if id := routes[address]; id == \"\" || !heard[id] {", "if false {"}}},
		{"a generator moves to another NATS server with requests under way", "TestSpread", []edit{{"spread.go",
			"	case g.segments.service != nil || g.snowflakes.service != nil || len(g.leaving) > 0:\n", ""},
			{"spread.go", "	case g.requests.busy() && ", "	case false && "}}},
		{"two generators move at a time", "TestWhoMoves", []edit{{"spread.go", " || places[turn].run != self", ""}}},
		{"a generator moves to and fro", "TestEmptiest", []edit{{"spread.go", "least := load[own] - 1", "least := load[own]"}}},
		{"generators that all use one NATS server do not say so", "TestCrowdedAlert", []edit{{"serve.go",
			"cmp.Or(g.cfg.NATSErr(), g.spreading.err(now, g.group.self, g.cfg.Conn.ConnectedServerName()))", "g.cfg.NATSErr()"}, {"serve.go", "	\"cmp\"\n", ""}}},
		{"the younger installation goes on", "TestOlderInstallationStays", []edit{{"identity.go",
			"if own == nil || !own.yieldsTo(b.Identity) {", "if own == nil || true {"}}},

		// Workers.
		{"a snowflake is issued before the worker was looked at again", "TestWorkerLostWhileCutOff", []edit{{"snowflakes.go",
			"if g.guard.isShut.Load() || a.Transport == NATS && g.unchecked() {", "if false {"}}},
		{"a worker is taken that a running generator has", "TestWorkerClaimedByAnother", []edit{{"snowflakes.go",
			"return g.group.claimed(time.Now(), worker) }", "return false }"}}},
		{"the worker of a running generator is released", "TestReleaseWorker",
			[]edit{{"workers.go", "	case w.Running:", "	case false:"}}},
		{"another record than the one that was looked at is released", "TestReleaseWorker", []edit{{"workers.go",
			"case w.Node != req.Node || !w.ReservedUntil.Equal", "case false && !w.ReservedUntil.Equal"}}},
		{"a worker is released that was heard a moment ago", "TestReleaseWorker", []edit{{"workers.go",
			"restBeforeRelease.Milliseconds()-(now", "0*restBeforeRelease.Milliseconds()-(now"}}},
		{"a release counts as done without an answer", "TestReleaseMeetsTheRegistry", []edit{{"workers.go",
			"	case err != nil:\n		return admin.Worker{}, unconfirmed",
			"	case false:\n		return admin.Worker{}, unconfirmed"}}},
		{"the registry is asked before the installation is known", "TestNotJoined", []edit{{"snowflakes.go",
			"	case <-r.joined:\n		return r.Registry.List(ctx)\n	case <-ctx.Done():\n		return nil, errNotJoined\n	}\n",
			"	default:\n		return r.Registry.List(ctx)\n	}\n"}}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edits...) })
	}
}
