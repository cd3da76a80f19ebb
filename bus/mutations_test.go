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

		// An ID goes to one caller.
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
			"		g.waiting = nil\n		n := b.callers", "		n := int64(b.callers)"}},
		{"the requests of a bulk of a strict tag go side by side", "TestBulkOfAStrictTag", mutate.Edit{"stream.go",
			"if a.err == nil && !b.from.strict.Load() {", "if a.err == nil {"}},

		// A bulk has as many IDs as were asked for.
		{"a bulk loses the first part of a divided batch", "TestBulkOfSmallAnswers", mutate.Edit{"stream.go",
			"			left += a.missing\n", ""}},
		{"a bulk goes on after an error", "TestBulkThatEnds", mutate.Edit{"stream.go",
			"				yield(Range{}, a.err)\n				return\n", "				yield(Range{}, a.err)\n"}},

		// An error says why.
		{"an error loses the reason that a generator gave", "TestErrorBody", mutate.Edit{"errors.go",
			"return &Error{body.Code, body.Reason,", "return &Error{body.Code, Internal,"}},
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
		{"hedges of slow answers cost nothing", "TestHedgesHaveABudget", mutate.Edit{"budget.go",
			"b.tokens = max(b.tokens-hedges*tokensForHedge, -mostDebt)", "_ = hedges"}},
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
