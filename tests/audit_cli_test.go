package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// audited runs leaf audit --json, which must end with this status.
func audited(t *testing.T, status int, args ...string) audit.Report {
	t.Helper()
	r := leaf(t, append([]string{"audit", "--json"}, args...)...)
	if r.status != status {
		t.Fatalf("leaf audit %v: exit status %d, want %d: %s%s", args, r.status, status, r.stdout, r.stderr)
	}
	return parse[audit.Report](t, []byte(r.stdout))
}

// reported waits until the events report all IDs of a tag that are claimed, and returns its audit.
func reported(t *testing.T, tag string, args ...string) (found bus.TagAudit) {
	t.Helper()
	testkit.Eventually(t, "events of all claims", func() bool {
		found = audited(t, 0, append([]string{tag}, args...)...).Tags[0]
		return found.Unreported == 0 && found.Events > 0
	})
	return found
}

// idFile writes a file of ranges.
func idFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ids.txt")
	writeFile(t, path, text)
	return path
}

// On a healthy installation the table says what the generators did, and the exit status is 0.
func TestAuditOfAHealthyInstallation(t *testing.T) {
	t.Parallel()
	g := embed(t, "--node", "one", "--tag", "order:100", "--tag", "unused")
	leafOK(t, "tag", "add", "gone", "-s", g.url)
	leafOK(t, "get", "gone", "-s", g.url)
	leafOK(t, "tag", "rm", "gone", "--yes", "-s", g.url)
	leafOK(t, "get", "order", "-n", "50", "-s", g.url)
	leafOK(t, "tag", "set", "order", "--max-id", "5001", "-s", g.url)
	leafOK(t, "get", "order", "-s", g.url)
	leafOK(t, "snowflake", "-s", g.url)
	order := reported(t, "order", "-s", g.url)
	if order.End != order.MaxID || order.End <= 5001 || order.Skipped == 0 || order.Lost != 0 || order.Reported+order.Skipped != int64(order.End)-1 {
		t.Errorf("order is %+v", order)
	}

	out := leafOK(t, "audit", "-s", g.url)
	rows := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(rows) != 7 {
		t.Fatalf("the audit is\n%s", out)
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	want := []string{"order", number(int64(order.End)), number(int64(order.MaxID)), number(order.Events), number(order.Reported), "0",
		number(order.Skipped), "0", "one", "100", "%", order.Since.Local().Format(time.RFC3339)}
	for i, want := range []string{
		"TAG CLAIMED BELOW MAX_ID EVENTS REPORTED LOST SKIPPED UNREPORTED GENERATORS SINCE",
		"gone 1001 - 1 1000 0 0 0 one 100 %", strings.Join(want, " "), "unused 1 1 0 0 0 0 0 - -",
		"WORKER HOLDER MAY ISSUE UNTIL STATE",
	} {
		if got := strings.Join(strings.Fields(rows[i]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("row %d is %q, want %q", i, got, want)
		}
	}
	if worker := rows[5]; !strings.Contains(worker, " one ") || !strings.HasSuffix(worker, " running") {
		t.Errorf("the worker is %q", worker)
	}
	if last := rows[6]; !strings.Contains(last, " events since 2") || !strings.HasSuffix(last, ", 3 tags, 1 worker: no contradiction") {
		t.Errorf("the last line is %q", last)
	}
	all := audited(t, 0, "-s", g.url)
	if len(all.Tags) != 3 || len(all.Workers) != 1 || all.Workers[0].Node != "one" || all.Contradictions == nil || len(all.Contradictions) != 0 || all.Events == 0 {
		t.Errorf("as JSON: %+v", all)
	}
	if some := audited(t, 0, "unused", "order", "order", "-s", g.url); len(some.Tags) != 2 || some.Tags[0].Events != order.Events || some.Workers != nil {
		t.Errorf("of two tags: %+v", some)
	}
	some := leaf(t, "audit", "order", "nobody", "-s", g.url)
	if some.want(t, 1, "nobody: unknown tag"); !strings.Contains(some.stdout, "2 tags: no contradiction") {
		t.Errorf("an unknown tag hides the audit of the others: %s", some.stdout)
	}
	g.stop()
	leaf(t, "audit", "-s", newNATS(t).ClientURL()).want(t, 3, "no generator")
}

// What callers got is compared with what was claimed.
func TestAuditOfWhatWasTaken(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:100", "--tag", "coupon:100")
	ids := leafOK(t, "get", "order", "-n", "250", "--ranges", "-s", g.url)
	leafOK(t, "get", "coupon", "-n", "2", "-s", g.url)
	end := int64(reported(t, "order", "-s", g.url).End)
	check := func(status int, text string, args ...string) (audit.Report, string) {
		t.Helper()
		args = append(args, "--taken", idFile(t, text), "-s", g.url)
		r := leaf(t, append([]string{"audit"}, args...)...)
		r.want(t, status)
		return audited(t, status, args...), r.stdout
	}
	if r, text := check(0, ids, "order"); r.Taken.IDs != 250 || r.Taken.Unreported != 0 || !strings.Contains(text, ", 250 IDs taken (0 again, 0 never claimed, 0 in no event)") {
		t.Errorf("what was taken: %+v\n%s", r.Taken, text)
	}
	above := fmt.Sprintf("%d-%d", end-1, end+1)
	r, text := check(1, above, "order")
	if len(r.Contradictions) != 1 || r.Contradictions[0].Kind != bus.TakenUnclaimed || r.Contradictions[0].First != bus.ID(end) || r.Contradictions[0].Last != bus.ID(end+1) ||
		r.Taken.Unclaimed != 2 || !strings.Contains(text, fmt.Sprintf("\nCONTRADICTION taken_unclaimed order: %d-%d ", end, end+1)) {
		t.Errorf("above the end: %+v\n%s", r, text)
	}
	r, text = check(1, ids+"7-8\n", "order")
	if len(r.Contradictions) != 1 || r.Contradictions[0].Kind != bus.TakenTwice || r.Taken.Repeated != 2 || !strings.Contains(text, "\nCONTRADICTION taken_twice order: 7-8 ") {
		t.Errorf("taken twice: %+v\n%s", r, text)
	}
	// Lines with tags, also of tags that are not named.
	for _, args := range [][]string{nil, {"order"}, {"order", "coupon"}} {
		r, _ := check(1, "order 1-5\n\ncoupon 1\ncoupon 1\n", args...)
		if len(r.Tags) != 2 || r.Taken.IDs != 6 || r.Taken.Unreported != 0 || len(r.Contradictions) != 1 || r.Contradictions[0].Tag != "coupon" {
			t.Errorf("audit %v of lines with tags: %+v", args, r)
		}
	}
	stdin := command(t, t.TempDir(), nil, []string{"audit", "order", "--taken", "-", "-s", g.url})
	stdin.Stdin = strings.NewReader(above)
	runLeaf(t, stdin).want(t, 1, "the audit found 1 contradiction")
}

// A load writes what it took, and the commands that it names find nothing wrong.
func TestAuditOfALoad(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:100")
	for _, with := range []string{"take", "next", "pool"} {
		for _, tag := range []string{"order", ""} {
			file := filepath.Join(t.TempDir(), "ids.txt")
			bench := leaf(t, strings.Fields("bench "+tag+" --with "+with+" --requests 300 --callers 7 --duration 1h --taken "+file+" -s "+g.url)...)
			bench.want(t, 0)
			_, said, _ := strings.Cut(bench.stderr, "leaf: `leaf ")
			check, _, _ := strings.Cut(said, "`")
			args := append(strings.Fields(check), "-s", g.url)
			if len(args) < 5 || args[0] != "audit" {
				t.Fatalf("bench says %s", bench.stderr)
			}
			r := audited(t, 0, args[1:]...)
			found := r.Taken
			if tag == "" {
				found = r.TakenSnowflakes
			}
			if found == nil || found.IDs != 301 || found.Unclaimed+found.Repeated != 0 { // one is taken before the load
				t.Errorf("--with %s %s: %+v", with, tag, found)
			}
			if tag == "" {
				text, err := os.ReadFile(file)
				must(t, err)
				first, _, _ := strings.Cut(string(text), "\n")
				again := leaf(t, "audit", "--taken-snowflakes", idFile(t, string(text)+first+"\n"), "-s", g.url)
				again.want(t, 1)
				if !strings.Contains(again.stdout, "\nCONTRADICTION taken_twice: "+first+" ") {
					t.Errorf("%s was taken twice:\n%s", first, again.stdout)
				}
			}
		}
	}
}

// Each answer of leaf trace.
func TestTrace(t *testing.T) {
	t.Parallel()
	g := embed(t, "--node", "one", "--tag", "order:100")
	js := jetStream(t, connect(t, g.url))
	leafOK(t, "get", "order", "-n", "150", "-s", g.url)
	leafOK(t, "tag", "set", "order", "--max-id", "5001", "-s", g.url)
	leafOK(t, "get", "order", "-n", "1000", "-s", g.url)
	order := reported(t, "order", "-s", g.url)
	snowflake := strings.TrimSpace(leafOK(t, "snowflake", "-s", g.url))
	trace := func(status int, outcome bus.TraceOutcome, args ...string) (bus.Trace, string) {
		t.Helper()
		args = append(append([]string{"trace"}, args...), "-s", g.url)
		text := leaf(t, args...)
		text.want(t, status)
		r := leaf(t, append(args, "--json")...)
		r.want(t, status)
		found := parse[bus.Trace](t, []byte(r.stdout))
		message, _, _ := strings.Cut(found.Message, " up to 20") // the time moves from one call to the next
		if found.Outcome != outcome || !strings.Contains(text.stdout, message) || message == "" {
			t.Errorf("leaf %v: %+v\n%s", args, found, text.stdout)
		}
		return found, text.stdout
	}
	found, text := trace(0, bus.Claimed, "order", "7")
	if c := found.Claims; len(c) != 1 || c[0].Node != "one" || c[0].First > 7 || c[0].Last < 7 || c[0].Cause == "" ||
		!strings.Contains(text, fmt.Sprintf("\nrange              %d-%d\n", c[0].First, c[0].Last)) {
		t.Errorf("of a claimed ID: %+v\n%s", found, text)
	}
	trace(0, bus.NotClaimed, "order", fmt.Sprint(order.End))
	trace(0, bus.Gap, "order", "5000")
	if found, text := trace(0, bus.Claimed, "--snowflake", snowflake); len(found.Claims) != 1 || found.Claims[0].Node != "one" || found.Decoded == nil ||
		!strings.Contains(text, "\nworker claimed until  ") {
		t.Errorf("of a snowflake: %+v\n%s", found, text)
	}
	id, err := strconv.ParseInt(snowflake, 10, 64)
	must(t, err)
	trace(0, bus.Impossible, "--snowflake", fmt.Sprint(id+time.Hour.Milliseconds()<<22))
	leaf(t, "trace", "nobody", "1", "-s", g.url).want(t, 1, "unknown_tag")

	forgeRefill(t, js, "order", "forger", 5, 9)
	if found, _ := trace(1, bus.Claimed, "order", "7"); len(found.Claims) != 2 {
		t.Errorf("of an ID with two claims: %+v", found)
	}
	overlap := leaf(t, "audit", "order", "-s", g.url)
	overlap.want(t, 1, "the audit found 1 contradiction", "overlap: if no event is forged", "docs/audit.md")
	if !strings.Contains(overlap.stdout, "\nCONTRADICTION overlap order: ") || !strings.Contains(overlap.stdout, "forger") || !strings.HasSuffix(overlap.stdout, ": 1 CONTRADICTION\n") {
		t.Errorf("the overlap is not named:\n%s", overlap.stdout)
	}

	// The stream loses all events of the tag. Its record still has the last claim.
	stream, err := js.Stream(t.Context(), bus.EventStream)
	must(t, err)
	must(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("leaf.events.*.*.*.order")))
	trace(0, bus.NotRecorded, "order", "7")
	found, text = trace(0, bus.Claimed, "order", fmt.Sprint(order.Last.Last))
	if len(found.Claims) != 1 || !found.Claims[0].Record || !strings.Contains(text, "the record") {
		t.Errorf("of the last claim: %+v\n%s", found, text)
	}
	leaf(t, "audit", "order", "-s", g.url).want(t, 0, "warning: no events")
}

// An auditor needs no right to change anything: these are the permissions of docs/audit.md.
func TestAuditPermissions(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, conf, `authorization { users: [
		{ user: all, password: p }
		{ user: auditor, password: p, permissions: { publish: [
			leaf.admin.claims, leaf.admin.workers.list, leaf.admin.audit, leaf.admin.trace, "$SRV.STATS.leaf",
			"$JS.API.STREAM.INFO.LEAF_EVENTS", "$JS.API.STREAM.MSG.GET.LEAF_EVENTS", "$JS.API.CONSUMER.*.LEAF_EVENTS.>", "$JS.API.CONSUMER.MSG.NEXT.LEAF_EVENTS.>"
		], subscribe: "_INBOX.>" } }
		{ user: tags, password: p, permissions: { publish: [ leaf.admin.claims,
			"$JS.API.STREAM.INFO.LEAF_EVENTS", "$JS.API.STREAM.MSG.GET.LEAF_EVENTS", "$JS.API.CONSUMER.*.LEAF_EVENTS.>", "$JS.API.CONSUMER.MSG.NEXT.LEAF_EVENTS.>" ] } }
		{ user: tracer, password: p, permissions: { publish: leaf.admin.trace } }
		{ user: unread, password: p, permissions: { publish: [ leaf.admin.claims, "$JS.API.STREAM.INFO.LEAF_EVENTS", "$JS.API.STREAM.MSG.GET.LEAF_EVENTS", "$JS.API.CONSUMER.*.LEAF_EVENTS.>" ] } }
		{ user: nobody, password: p, permissions: { publish: [ "leaf.admin.>", "$SRV.>" ] } }
	] }`)
	url := newNATSFrom(t, conf).ClientURL()
	g := serve(t, t.TempDir(), "-s", url, "--user", "all", "--password", "p", "--tag", "order:100")
	auditor := []string{"-s", g.url, "--user", "auditor", "--password", "p"}
	leafOK(t, "get", "order", "-n", "150", "-s", g.url, "--user", "all", "--password", "p")
	reported(t, "order", auditor...)
	if r := audited(t, 0, auditor...); len(r.Workers) != 1 || !r.Workers[0].Running {
		t.Errorf("the auditor sees %+v", r)
	}
	leafOK(t, append([]string{"trace", "order", "7"}, auditor...)...)
	leafOK(t, "trace", "order", "7", "-s", g.url, "--user", "tracer", "--password", "p")
	leafOK(t, "audit", "order", "-s", g.url, "--user", "tags", "--password", "p")
	leaf(t, append([]string{"tag", "rm", "order", "--yes"}, auditor...)...).want(t, 1, "may not")
	leaf(t, "audit", "-s", g.url, "--user", "nobody", "--password", "p", "--timeout", "1s").want(t, 1, "LEAF_EVENTS", "Permissions Violation", "$JS.API.STREAM.INFO.LEAF_EVENTS")
	leaf(t, "audit", "order", "-s", g.url, "--user", "unread", "--password", "p").want(t, 1, "Permissions Violation", "$JS.API.CONSUMER.MSG.NEXT.LEAF_EVENTS")
}
