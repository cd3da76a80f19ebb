package tests

import (
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// With MySQL the rules of a tag stand in the ledger. So they outlive all generators, and an older copy of the database.
func TestRulesOutlive(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	server := newNATS(t)
	url := server.ClientURL()
	nc := connect(t, url)
	ids := &allocatortest.Checker{}
	const pausedAndLimited = `"paused":true,"limit":"3000"`

	all := join(t, url, dsn, []string{"one", "two"}, "--tag", "order:100", "--max-step", "100")
	takeMany(t, nc, "order", 50, ids)
	execute(t, db, "CREATE TABLE saved LIKE leaf_alloc", "INSERT INTO saved SELECT * FROM leaf_alloc")
	takeMany(t, nc, "order", 500, ids)
	leafOK(t, "tag", "set", "order", "--limit", "3000", "-s", url)
	leafOK(t, "tag", "pause", "order", "-s", url)
	if out := leafOK(t, "tag", "show", "order", "--json", "-s", url); !strings.Contains(out, pausedAndLimited) {
		t.Errorf("the tag is %s", out)
	}
	refusedEverywhere := func() {
		t.Helper()
		for range 40 { // so often that each of two generators is asked
			refused(t, ask(t, nc, "leaf.segment.order", ""), 403, bus.Paused)
		}
	}
	refusedEverywhere()
	for _, g := range all {
		g.stop()
	}

	execute(t, db, "REPLACE INTO leaf_alloc SELECT * FROM saved")
	join(t, url, dsn, []string{"one", "two"}, "--max-step", "100")
	refusedEverywhere()
	if out := leafOK(t, "tag", "show", "order", "--json", "-s", url); !strings.Contains(out, pausedAndLimited) {
		t.Errorf("after a restart and a restore the tag is %s", out)
	}
	leafOK(t, "tag", "resume", "order", "-s", url)
	for {
		msg := ask(t, nc, "leaf.segment.order", "")
		if msg.Header.Get("Nats-Service-Error-Code") != "" {
			refused(t, msg, 507, bus.Exhausted)
			break
		}
		ranges, err := bus.ParseReply(msg.Data)
		must(t, err)
		ids.Add(ranges...)
		if ranges[0].Last > 3000 {
			t.Fatalf("%d is above the limit", ranges[0].Last)
		}
	}
	leafOK(t, "tag", "set", "order", "--limit", "none", "-s", url)
	takeMany(t, nc, "order", 500, ids)
	if n, err := ids.Check(); err != nil || n < 1000 {
		t.Errorf("%d IDs: %v", n, err)
	}
}

// What an operator sets wrongly is refused in words that say what is right, and changes nothing.
func TestRulesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:100")
	leafOK(t, "tag", "set", "order", "--quota", "1000/s", "--burst", "5000", "--outlast", "1h", "--max-step", "1000", "--limit", "2147483647", "-s", g.url)
	before := leafOK(t, "tag", "show", "order", "--json", "-s", g.url)
	const all = `"quota":{"per_second":1000,"burst":5000},"outlast":"1h","max_step":1000,"limit":"2147483647"`
	if !strings.Contains(before, all) {
		t.Errorf("the tag is %s", before)
	}
	for _, c := range []struct{ args, stderr string }{
		{"--quota 1000/m", "quota"},
		{"--quota -5/s", "quota"},
		{"--burst 0", "burst"},
		{"--outlast 1ms", "outlast"},
		{"--outlast soon", "outlast"},
		{"--max-step 10", "max_step"},
		{"--limit 9223372036854775807", "limit"},
		{"--limit many", "limit"},
	} {
		r := leaf(t, append([]string{"tag", "set", "order", "-s", g.url}, strings.Fields(c.args)...)...)
		if r.status == 0 || !strings.Contains(r.stderr, c.stderr) {
			t.Errorf("%s: status %d, %s", c.args, r.status, r.stderr)
		}
	}
	if after := leafOK(t, "tag", "show", "order", "--json", "-s", g.url); after != before {
		t.Errorf("the tag was %s and is %s", before, after)
	}
	leafOK(t, "tag", "set", "order", "--quota", "none", "--outlast", "none", "--max-step", "none", "--limit", "none", "-s", g.url)
	if after := leafOK(t, "tag", "show", "order", "--json", "-s", g.url); strings.Contains(after, "quota") || strings.Contains(after, "limit") {
		t.Errorf("without rules the tag is %s", after)
	}
	leafOK(t, "tag", "pause", "order", "-s", g.url)
	leaf(t, "get", "order", "-s", g.url, "--timeout", "1s").want(t, 1, "paused")
	leafOK(t, "tag", "resume", "order", "-s", g.url)
	leafOK(t, "get", "order", "-s", g.url)
}
