//go:build mutations

package bus

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes, which break a promise of the client: its callers get
// IDs that nobody else has, as many as they asked for, those of strict tags in order, or an error that says why.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name, by string // by finds it
		edit     mutate.Edit
	}{
		// An answer serves the call that asked for it.
		{"an answer that comes late serves the next call", "TestLateAnswersServeNobody", mutate.Edit{"exchange.go",
			"	if c.owed == 0 {\n		delete(x.open, c.token)\n", "	if true {\n"}},
		{"an answer that comes second serves the next call", "TestLateAnswersServeNobody", mutate.Edit{"exchange.go",
			"	for len(c.answers) > 0 { // they came", "	for false { // they came"}},
		{"too few IDs are accepted", "TestClientRefusesFalseAnswers", mutate.Edit{"source.go",
			"err == nil && got != n {", "err == nil && got > n {"}},
		{"too many IDs are accepted", "TestClientRefusesFalseAnswers", mutate.Edit{"source.go",
			"err == nil && got != n {", "err == nil && got < n {"}},
		{"an ID may be twice in an answer", "TestClientRefusesFalseAnswers", mutate.Edit{"source.go",
			"if err == nil && overlap(ranges) {", "if false {"}},

		{"what no generator can answer is sent", "TestClientChecksBeforeItSends", mutate.Edit{"client.go",
			"	if n < 1 {", "	if n < 0 {"}},

		// An ID goes to one caller.
		{"a spare ID belongs to a caller of the batch, too", "TestNextIncreases", mutate.Edit{"next.go",
			"g.spare = ids[n:]", "g.spare = ids[n-1:]"}},
		{"callers of Next that share a request share an ID", "TestNextSharesRequests", mutate.Edit{"next.go",
			"return b.ids[i], nil", "return b.ids[0], nil"}},
		{"a caller of Next leaves its ID when it is there", "TestNextLeavesTooLate", mutate.Edit{"next.go",
			"	case <-b.done:\n		return false\n", "	case <-b.done:\n		return true\n"}},
		{"a pool hands out IDs that Close returned", "TestPoolOfASlowGenerator", mutate.Edit{"pool.go",
			"	unused := p.ids\n	p.ids, p.left = nil, 0\n", "	unused := p.ids\n	p.closed = false\n"}},
		{"a pool hands an ID out twice", "TestPoolLargestID", mutate.Edit{"pool.go",
			"	r.First++\n	p.left--\n", "	p.left--\n"}},

		// The IDs of strict tags are in order.
		{"a pool may be of a strict tag", "TestPoolOfAStrictTag", mutate.Edit{"pool.go",
			"	case p.from.strict.Load():\n		return 0,", "	case false:\n		return 0,"}},
		{"a closed pool of a strict tag returns what it has", "TestPoolOfAStrictTag", mutate.Edit{"pool.go",
			"	case p.from.strict.Load():\n		p.ids,", "	case false:\n		p.ids,"}},
		{"callers that come later share a request that is under way", "TestNextKeepsOrder", mutate.Edit{"next.go",
			"		g.waiting = nil\n		n := b.callers", "		n := b.callers"}},
		{"IDs of a strict tag are fetched ahead", "TestNextOfManyCallersOfAStrictTag", mutate.Edit{"next.go",
			"trend = err == nil && !g.strict.Load()", "trend = err == nil"}},
		{"the requests of a bulk of a strict tag go side by side", "TestBulkOfAStrictTag", mutate.Edit{"stream.go",
			"if a.err == nil && !b.from.strict.Load() {", "if a.err == nil {"}},

		// Callers leave, and their requests end.
		{"a batch that all have left takes callers", "TestNextLeaves", mutate.Edit{"next.go",
			"			g.waiting = nil\n		}\n	}\n	return true", "		}\n	}\n	return true"}},
		{"a request outlasts its callers", "TestNextGivesUp", mutate.Edit{"next.go",
			"b.callers == 0 {\n		b.cancel()", "b.callers == 0 {"}},
		{"a client that nobody uses keeps its subscription", "TestClientIsCollected", mutate.Edit{"client.go",
			"(*exchange).close, c.x)", "func(*exchange) {}, c.x)"}},

		// A pool follows the demand. A bulk has as many IDs as were asked for.
		{"a pool does not grow", "TestPoolFollowsTheDemand", mutate.Edit{"pool.go",
			"min(2*p.distance, p.most)", "min(p.distance, p.most)"}},
		{"a bulk asks for all at once", "TestBulkIsBounded", mutate.Edit{"stream.go",
			"for left > 0 && len(queue) < most {", "for left > 0 {"}},
		{"a bulk loses the first part of a divided batch", "TestBulkOfSmallAnswers", mutate.Edit{"stream.go",
			"			left += a.missing\n", ""}},
		{"a bulk goes on after an error", "TestBulkThatEnds", mutate.Edit{"stream.go",
			"				yield(Range{}, a.err)\n				return\n", "				yield(Range{}, a.err)\n"}},

		// An error says why.
		{"an error loses the reason that a generator gave", "TestErrorBody", mutate.Edit{"errors.go",
			"return &Error{body.Code, body.Reason,", "return &Error{body.Code, Internal,"}},
		{"an error of another service is taken for IDs", "TestForeignError", mutate.Edit{"errors.go",
			"code == \"\" && text == \"\"", "code == \"\" || text == \"\""}},
		{"a caller of a batch that failed gets no error", "TestNextErrorOfTheRest", mutate.Edit{"next.go",
			"ids[:min(n, len(ids))], err", "ids[:min(n, len(ids))], nil"}},
		{"a call without time does not say why", "TestCallWithoutTime", mutate.Edit{"call.go",
			"	case c.failed != nil && c.failed.Load() != nil:", "	case false:"}},
		{"a call is not reported with its error", "TestOnCall", mutate.Edit{"client.go",
			"Took: time.Since(began), Err: err})", "Took: time.Since(began)})"}},
		{"the end of a context hides why there were no IDs", "TestClientThatGivesUp", mutate.Edit{"../internal/wire/ask.go",
			"why = fmt.Errorf(\"%w (%w)\", why, end)", "why = end"}},
		{"a quota that is used up is asked for again at once", "TestClientTriesAgainWhatMayGetBetter", mutate.Edit{"call.go",
			"return e.RetryAfter == 0 ||", "return"}},
		{"a caller that has more time than its batch ends with it", "TestNextTimeout", mutate.Edit{"next.go",
			"deadline.IsZero() || !timedOut(err) &&", "!timedOut(nil) ||"}},
		{"a caller ends with one that has less time for a quota", "TestNextTimeout", mutate.Edit{"next.go",
			"&& deadline.After(b.soonest)", "&& false"}},
		{"a missing permission is not named", "TestClientWithoutPermission", mutate.Edit{"call.go",
			"if last := line.lastError(); last != nil {", "if last := line.lastError(); false {"}},

		// A call outlasts a generator or a NATS server that hangs.
		{"a late request is not sent again", "TestWhenRequestsAreSentAgain", mutate.Edit{"call.go",
			"	if !c.x.hedging || c.hedges >= mostHedges {", "	if true {"}},
		{"pauses after refusals do not grow", "TestPausesAfterRefusals", mutate.Edit{"call.go",
			"min(2*c.pause, lastPause)", "c.pause"}},
		{"a request goes out after the reconnect", "TestClientSendsNothingWhileNATSIsAway", mutate.Edit{"connect.go",
			"	return wire.Away(l.nc)", "	_ = wire.Away\n	return nil"}},
		{"callers of Next wait for a lost answer", "TestNextDoesNotWaitForALostAnswer", mutate.Edit{"call.go",
			"		c.late()\n", ""}},
		{"a client of Connect has one connection", "TestConnect", mutate.Edit{"connect.go",
			"	if len(first.Servers()) > 1 {", "	if false {"}},
		{"both connections stay at one server", "TestConnectWhileAServerIsAway", mutate.Edit{"connect.go",
			"			_ = second.ForceReconnect()\n", ""}},
		{"hedges of slow answers cost nothing", "TestHedgesHaveABudget", mutate.Edit{"budget.go",
			"b.tokens = max(b.tokens-hedges*tokensForHedge, -mostDebt)", "_ = hedges"}},
		{"calls earn no hedges for silent generators", "TestFrozenGenerator", mutate.Edit{"budget.go",
			"(b.calls+b.before)/hedgedCalls+freeHedges {", "freeHedges {"}},
		{"hedges of silent generators cost something", "TestWhatHedgesCost", mutate.Edit{"budget.go",
			"silence = time.Second", "silence = time.Hour"}},
		{"a hedge goes over the same connection", "TestFrozenServer", mutate.Edit{"exchange.go",
			"		i = 1 - c.sent[n-1].line", "		i = c.sent[n-1].line"}},
		{"requests go over a connection that hangs", "TestFrozenServer", mutate.Edit{"exchange.go",
			"away[1-i] == nil && hangs(i) && !hangs(1-i)", "false && hangs(i)"}},
		{"calls that wait together raise the delay together", "TestDelay", mutate.Edit{"budget.go",
			"took < silence && !sent.Before(b.raised)", "took < silence"}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{Package: "."}.Run(t, m.by, m.edit) })
	}
}
