//go:build mutations

package gateway

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// mutation is a change of the code that breaks a promise.
type mutation struct {
	name  string
	by    string // the test that finds it
	edits []edit
}

type edit = mutate.Edit

// TestMutations demands that a test finds each mutation. It checks the tests, not the code: `make mutations`.
func TestMutations(t *testing.T) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edits...) })
	}
}

var mutations = []mutation{
	// IDs.
	{name: "a batch is answered with its first range", by: "TestIDs", edits: []edit{{"ids.go",
		"wire.AppendReply(make([]byte, 0, 64), ranges, ", "wire.AppendReply(make([]byte, 0, 64), ranges[:1], "}}},
	{name: "IDs of a batch are numbers in JSON", by: "TestIDs", edits: []edit{{"ids.go",
		"w.Write(wire.AppendReply(make([]byte, 0, 64), ranges, asJSON))",
		"w.Write([]byte(strings.NewReplacer(`:\"`, \":\", `\",`, \",\", `\"}`, \"}\").Replace(\n" +
			"		string(wire.AppendReply(nil, ranges, asJSON)))))"}}},
	{name: "an answer with IDs may come from a cache", by: "TestIDs", edits: []edit{{"server.go",
		"	h[\"Cache-Control\"] = noStore // an answer from a cache would repeat an ID\n",
		"	if r.Method != http.MethodGet {\n		h[\"Cache-Control\"] = noStore\n	}\n"}}},
	{name: "the snowflakes' path answers with IDs of a tag", by: "TestIDs", edits: []edit{{"ids.go",
		"		return generator.SnowflakeKind, key, key", "		return generator.SegmentKind, key, key"}}},
	{name: "the path of a tag is cleaned", by: "TestTagOfPath", edits: []edit{{"ids.go",
		"strings.CutPrefix(path, leafSegmentPath)",
		"strings.CutPrefix(strings.ReplaceAll(path, \"//\", \"/\"), leafSegmentPath)"}}},
	{name: "HEAD takes an ID", by: "TestOnlyGetTakesIDs", edits: []edit{{"ids.go",
		"	case r.Method == http.MethodHead:", "	case false:"}}},
	{name: "POST takes an ID", by: "TestOnlyGetTakesIDs", edits: []edit{{"admit.go",
		"	if isV1(r) {\n		methods", "	if true {\n		methods"}}},
	{name: "a strict tag's answer does not say so", by: "TestOrderOfIDs", edits: []edit{{"ids.go",
		"s.cfg.Generator.Order(tag) == allocator.Strict {", "s.cfg.Generator.Order(tag) != allocator.Strict {"}}},

	{name: "JSON is preferred to what a client names before it", by: "TestPrefersJSON", edits: []edit{{"ids.go",
		"(plain < 0 || json < plain)", "(plain < 0 || json != plain)"}}},

	// The count.
	{name: "of two counts the first is taken", by: "TestBadRequests", edits: []edit{{"ids.go",
		"	if len(counts) > 1 {", "	if len(counts) > 2 {"}}},
	{name: "a mistyped count is 1", by: "TestV1Errors", edits: []edit{{"ids.go",
		"		if alone && name", "		if !alone && name"}}},
	{name: "an empty count is 1", by: "TestBadRequests", edits: []edit{{"ids.go",
		" || req.JSON || counts[0] == \"\" {", " || req.JSON {"}}},
	{name: "a count in JSON is taken", by: "TestBadRequests", edits: []edit{{"ids.go",
		" || req.JSON || counts[0]", " || counts[0]"}}},
	{name: "a count that cannot be read is 1", by: "TestBadRequests", edits: []edit{{"ids.go",
		"(alone || strings.Contains(query, \"count\"))", "(alone || strings.Contains(query, \"count%\"))"}}},

	// Errors.
	{name: "an error has status 200", by: "TestErrorsAsLeafTellsThem", edits: []edit{{"errors.go",
		"refuse(w, r, http.StatusInternalServerError, leafException", "refuse(w, r, http.StatusOK, leafException"}}},
	{name: "an error does not say when to try again", by: "TestErrorsAsLeafTellsThem", edits: []edit{{"errors.go",
		"math.Ceil(after.Seconds())", "math.Floor(after.Seconds())"}}},
	{name: "a caller that has gone gets an answer", by: "TestCallerThatHasGone", edits: []edit{{"errors.go",
		"		panic(http.ErrAbortHandler)", "		return"}}},

	{name: "an overload blames the caller", by: "TestV1Errors", edits: []edit{{"errors.go",
		"		status = http.StatusServiceUnavailable // 429", "		// 429"}}},
	{name: "a refusal does not say when to ask again", by: "TestV1Errors", edits: []edit{{"errors.go",
		"		retry = cmp.Or(retry, time.Second)", "		retry = cmp.Or(retry, 0)"}}},
	{name: "a count in the body is not read, and no error says so", by: "TestV1Errors", edits: []edit{{"ids.go",
		"isV1(r) && r.ContentLength > 0", "isV1(r) && r.ContentLength > maxBody"}}},
	{name: "an error of /v1 has Leaf's form", by: "TestV1Errors", edits: []edit{{"errors.go",
		"	if isV1(r) {\n		refuseV1(w, e)", "	if false {\n		refuseV1(w, e)"}}},

	// Who may ask.
	{name: "the token is not compared", by: "TestTokens", edits: []edit{{"admit.go",
		"found |= subtle.ConstantTimeCompare(sum[:], one[:])", "found |= subtle.ConstantTimeCompare(sum[:], one[:]) | min(1, len(shown))"}}},
	{name: "a part of the token is enough", by: "TestTokens", edits: []edit{{"admit.go",
		"	return found == 1\n",
		"	return found == 1 || shown != \"\" && len(tokens) > 0 && strings.HasPrefix(tokens[len(tokens)-1], shown)\n"}}},
	{name: "only the first token of a file opens", by: "TestTokens", edits: []edit{{"admit.go",
		"range tokens {", "range tokens[:min(1, len(tokens))] {"}}},
	{name: "the callers' token opens the dashboard", by: "TestTokens", edits: []edit{{"admit.go",
		"	case open, contains(tokens.Callers, shown):\n		return caller",
		"	case open, contains(tokens.Callers, shown):\n		return operator"}}},
	{name: "the dashboard is open to the network", by: "TestTokens", edits: []edit{{"admit.go",
		"open && len(tokens.Operators) == 0 && s.local:", "open && len(tokens.Operators) == 0:"}}},
	{name: "metrics are for callers", by: "TestTokens", edits: []edit{{"admit.go",
		" || path == decodePath", " || path == decodePath || path == \"/metrics\""}}},
	{name: "health says what is missing to everybody", by: "TestTokens", edits: []edit{{"server.go",
		"	if s.rights(r) != operator {", "	if s.rights(r) == none {"}}},
	{name: "a page of another site may take IDs", by: "TestOtherSites", edits: []edit{{"admit.go",
		"return len(site) > 0 && site[0] != \"same-origin\"", "return len(site) > 1 && site[0] != \"same-origin\""}}},
	{name: "a page of another site may show this one", by: "TestHeadersOfPages", edits: []edit{{"server.go",
		"	h.Set(\"X-Frame-Options\", \"DENY\")\n", ""}}},
	{name: "a page may point its own name here", by: "TestHost", edits: []edit{{"admit.go",
		"host == \"localhost\" || strings.HasSuffix", "strings.Contains(host, \"localhost\") || strings.HasSuffix"}}},

	// What operators see.
	{name: "a process that only a restart helps is healthy", by: "TestHealthz", edits: []edit{{"server.go",
		"	if s.cfg.Dead() != nil {", "	if false {"}}},
	{name: "a failure counts as the caller's mistake", by: "TestMetrics", edits: []edit{{"metrics.go",
		"	return \"failed\"\n", "	return \"refused\"\n"}}},
	{name: "IDs that a peer reserves count twice", by: "TestMetricsOfStrictTags", edits: []edit{{"metrics.go",
		"		if e.PassedTo == \"\" {", "		if true {"}}},
	{name: "a record that cannot be served is not shown", by: "TestUnservedTags", edits: []edit{{"tags.go",
		"range page.Unserved {", "range page.Unserved[:0] {"}}},
	{name: "the oldest events of the stream are shown", by: "TestLatestEvents", edits: []edit{{"latest.go",
		"max(has.LastSeq, maxShown)-maxShown+1); next <=", "0); next <= maxShown && next <="}}},
	{name: "an event is shown again", by: "TestLatestEvents", edits: []edit{{"latest.go",
		"		l.read = next\n", ""}}},
	{name: "a tag that ends is shown only if it is busy", by: "TestBusiest", edits: []edit{{"tags.go",
		"	names = names[:min(len(names), maxEnding)]\n", "	names = nil\n"}}},

	// What callers can hold.
	{name: "a body of any size is read", by: "TestBodies", edits: []edit{{"admit.go",
		"r.ContentLength > maxBody || r.ContentLength < 0:", "r.ContentLength < 0:"}}},
	{name: "connections have no bound", by: "TestConnections", edits: []edit{{"server.go",
		"netutil.LimitListener(s.cfg.Listener, s.conns)", "netutil.LimitListener(s.cfg.Listener, 1<<16)"}}},
	{name: "a caller may take any time for its request", by: "TestSlowCallersAreCutOff", edits: []edit{{"server.go",
		", server.ReadTimeout = maxHeader, 5*time.Second, 10*time.Second", " = maxHeader, 5*time.Second"}}},
	{name: "a header of any size is read", by: "TestSizeOfHeader", edits: []edit{{"server.go",
		"server.MaxHeaderBytes, server.ReadHeaderTimeout, server.ReadTimeout = maxHeader, 5*time.Second",
		"server.MaxHeaderBytes, server.ReadHeaderTimeout, server.ReadTimeout = 100*maxHeader, 5*time.Second"}}},
	{name: "each viewer asks all generators", by: "TestSharedAnswers", edits: []edit{{"cache.go",
		"ok && time.Now().Before(known.until)", "ok && time.Now().After(known.until)"}}},
	{name: "a stop leaves connections open", by: "TestStopInTheEnd", edits: []edit{{"server.go",
		"		_ = s.server.Close()\n	}\n	<-failed", "	}\n	<-failed"}}},
	{name: "a stop drops the requests under way", by: "TestStop", edits: []edit{{"server.go",
		"if err := s.server.Shutdown(late); err != nil {", "if err := s.server.Close(); err != nil || late.Err() != nil {"}}},
}
