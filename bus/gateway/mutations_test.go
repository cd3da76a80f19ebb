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
	{name: "a batch is answered with its first range", by: "TestIDs", edits: []edit{{"leaf.go",
		"bus.AppendReply(make([]byte, 0, 64), ranges, ", "bus.AppendReply(make([]byte, 0, 64), ranges[:1], "}}},
	{name: "IDs of a batch are numbers in JSON", by: "TestIDs", edits: []edit{{"leaf.go",
		"	writeIDs(w, asJSON, bus.AppendReply(make([]byte, 0, 64), ranges, asJSON && batch))",
		"	writeIDs(w, asJSON, []byte(strings.NewReplacer(`:\"`, \":\", `\",`, \",\", `\"}`, \"}\").Replace(\n" +
			"		string(bus.AppendReply(nil, ranges, asJSON && batch)))))"}}},
	{name: "an answer with IDs may come from a cache", by: "TestIDs", edits: []edit{{"server.go",
		"	h[\"Cache-Control\"] = noStore // an answer from a cache would repeat an ID\n",
		"	if r.Method != http.MethodGet {\n		h[\"Cache-Control\"] = noStore\n	}\n"}}},
	{name: "the snowflakes' path answers with IDs of a tag", by: "TestIDs", edits: []edit{{"server.go",
		"		s.snowflake(w, r, key)", "		s.segment(w, r, key)"}}},
	{name: "the path of a tag is cleaned", by: "TestTagOfPath", edits: []edit{{"server.go",
		"strings.CutPrefix(r.URL.Path, segmentPath)",
		"strings.CutPrefix(strings.ReplaceAll(r.URL.Path, \"//\", \"/\"), segmentPath)"}}},
	{name: "HEAD takes an ID", by: "TestOnlyGetTakesIDs", edits: []edit{{"leaf.go",
		"	if r.Method == http.MethodHead { // an", "	if false { // an"}}},
	{name: "POST takes an ID", by: "TestOnlyGetTakesIDs", edits: []edit{{"admit.go",
		"	case r.Method != http.MethodGet && r.Method != http.MethodHead:", "	case r.Method == http.MethodDelete:"}}},
	{name: "a strict tag's answer does not say so", by: "TestOrderOfIDs", edits: []edit{{"leaf.go",
		"s.cfg.Generator.Order(tag) == allocator.Strict {", "s.cfg.Generator.Order(tag) != allocator.Strict {"}}},

	// The count.
	{name: "of two counts the first is taken", by: "TestBadRequests", edits: []edit{{"leaf.go",
		"	if len(counts) > 1 {", "	if len(counts) > 2 {"}}},
	{name: "an empty count is 1", by: "TestBadRequests", edits: []edit{{"leaf.go",
		" || req.JSON || counts[0] == \"\" {", " || req.JSON {"}}},
	{name: "a count in JSON is taken", by: "TestBadRequests", edits: []edit{{"leaf.go",
		" || req.JSON || counts[0]", " || counts[0]"}}},
	{name: "a count that cannot be read is 1", by: "TestBadRequests", edits: []edit{{"leaf.go",
		"err != nil && strings.Contains(query, \"count\")", "err != nil && strings.Contains(query, \"count%\")"}}},

	// Errors.
	{name: "an error has status 200", by: "TestErrorsAsLeafTellsThem", edits: []edit{{"leaferror.go",
		"refuse(w, r, http.StatusInternalServerError, leafException", "refuse(w, r, http.StatusOK, leafException"}}},
	{name: "an error does not say when to try again", by: "TestErrorsAsLeafTellsThem", edits: []edit{{"leaferror.go",
		"math.Ceil(e.RetryAfter.Seconds())", "math.Floor(e.RetryAfter.Seconds())"}}},
	{name: "a caller that has gone gets an answer", by: "TestCallerThatHasGone", edits: []edit{{"leaferror.go",
		"		panic(http.ErrAbortHandler)", "		return"}}},

	// Who may ask.
	{name: "the token is not compared", by: "TestToken", edits: []edit{{"admit.go",
		"return subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1", "return shown != \"\" && subtle.ConstantTimeCompare(sum[:], s.token[:]) <= 1"}}},
	{name: "a part of the token is enough", by: "TestToken", edits: []edit{{"admit.go",
		"return subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1",
		"return subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1 || shown != \"\" && strings.HasPrefix(s.cfg.Token, shown)"}}},
	{name: "metrics need no token", by: "TestToken", edits: []edit{{"admit.go",
		"return path == \"/healthz\" ||", "return path == \"/metrics\" || path == \"/healthz\" ||"}}},
	{name: "the dashboard needs no token", by: "TestToken", edits: []edit{{"admit.go",
		"return path == \"/healthz\" ||", "return strings.HasPrefix(path, \"/dashboard/\") || path == \"/healthz\" ||"}}},
	{name: "health says what is missing to everybody", by: "TestToken", edits: []edit{{"server.go",
		"	if !s.authorized(r) {", "	if false {"}}},
	{name: "a page of another site may take IDs", by: "TestOtherSites", edits: []edit{{"admit.go",
		"return len(site) > 0 && site[0] != \"same-origin\"", "return len(site) > 1 && site[0] != \"same-origin\""}}},
	{name: "a page may point its own name here", by: "TestHost", edits: []edit{{"admit.go",
		"host == \"localhost\" || strings.HasSuffix", "strings.Contains(host, \"localhost\") || strings.HasSuffix"}}},

	// What callers can hold.
	{name: "a body of any size is read", by: "TestBodies", edits: []edit{{"admit.go",
		"r.ContentLength > maxBody || r.ContentLength < 0:", "r.ContentLength < 0:"}}},
	{name: "connections have no bound", by: "TestConnections", edits: []edit{{"server.go",
		"netutil.LimitListener(s.cfg.Listener, s.limits.conns)", "netutil.LimitListener(s.cfg.Listener, 1<<16)"}}},
	{name: "a deadline that comes during a call does not end it", by: "TestDeadlines", edits: []edit{{"conn.go",
		"	if d.calls == 0 {", "	if true {"}}},
	{name: "a stop drops the requests under way", by: "TestStop", edits: []edit{{"server.go",
		"if err := server.Shutdown(late); err != nil {", "if err := server.Close(); err != nil || late.Err() != nil {"}}},
}
