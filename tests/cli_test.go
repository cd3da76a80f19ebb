package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// lines checks lines of numbers as they are written: each above the one before.
type lines struct {
	count, last, number int64
	err                 error
}

func (l *lines) Write(p []byte) (int, error) {
	for _, c := range p {
		switch {
		case c >= '0' && c <= '9':
			l.number = 10*l.number + int64(c-'0')
		case c == '\n' && l.number > l.last:
			l.count, l.last, l.number = l.count+1, l.number, 0
		default:
			if l.err == nil {
				l.err = fmt.Errorf("after %d lines: %q behind %d, the last line was %d", l.count, c, l.number, l.last)
			}
		}
	}
	return len(p), l.err
}

// peakMemory runs a command and returns the most memory that it had, in bytes.
// A process of its own starts it: on Linux a child is charged for the memory
// that its parent had when it was started.
func peakMemory(t *testing.T, stdout *lines, args ...string) int64 {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "peak")
	like := command(t, t.TempDir(), []string{peakFile + "=" + file}, args)
	cmd := exec.Command(self, append([]string{like.Path}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdout = like.Dir, like.Env, stdout
	p := start(t, cmd)
	if status := p.wait(patience); status != 0 {
		t.Fatalf("leaf %v: exit status %d", args, status)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	peak, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

// Ten million IDs are written one a line, in memory that does not grow with
// their number.
func TestGetTenMillion(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	var few, many lines
	little := peakMemory(t, &few, "get", "order", "-n", "10", "-s", g.url)
	much := peakMemory(t, &many, "get", "order", "-n", "10000000", "-s", g.url)
	if few.count != 10 || many.count != 10_000_000 || few.err != nil || many.err != nil || many.last <= few.last {
		t.Errorf("%d and %d lines came: %v, %v", few.count, many.count, few.err, many.err)
	}
	t.Logf("%d MiB for 10 IDs, %d MiB for 10,000,000", little>>20, much>>20)
	if much-little > 50<<20 {
		t.Errorf("%d bytes of memory for 10 IDs, and %d for 10,000,000", little, much)
	}
	if !raceEnabled && much > 100<<20 {
		t.Errorf("%d bytes of memory", much)
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:10")
	server := []string{"-s", g.url}
	get := func(args ...string) string {
		t.Helper()
		return leafOK(t, append(append([]string{"get", "order"}, args...), server...)...)
	}
	if out := get(); out != "1\n" {
		t.Errorf("one ID is %q", out)
	}
	if out := get("-n", "3"); out != "2\n3\n4\n" {
		t.Errorf("three IDs are %q", out)
	}
	if out := get("-n", "250000", "--ranges"); !regexp.MustCompile(`^(\d+-\d+\n)+$`).MatchString(out) || !strings.HasPrefix(out, "5-") || !strings.HasSuffix(out, "-250004\n") {
		t.Errorf("as ranges: %q", out)
	}
	if out := get("--ranges"); out != "250005\n" {
		t.Errorf("a range of one: %q", out)
	}
	var count int64
	first := int64(250_006)
	in := parse[rangesReply](t, []byte(get("-n", "250000", "--json")))
	for _, r := range in.Ranges {
		var from, to int64
		if _, err := fmt.Sscan(r.First, &from); err != nil || from != first {
			t.Errorf("range %+v, want it from %d", r, first)
		}
		if _, err := fmt.Sscan(r.Last, &to); err != nil || to < from {
			t.Errorf("range %+v", r)
		}
		count, first = count+to-from+1, to+1
	}
	if in.Count != 250_000 || count != 250_000 {
		t.Errorf("as JSON: %d IDs in ranges, count is %d", count, in.Count)
	}
	file := filepath.Join(t.TempDir(), "ids.txt")
	if out := get("-n", "2", "--output", file); out != "" {
		t.Errorf("with --output, stdout has %q", out)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "500006\n500007\n" {
		t.Errorf("the file has %q, %v", text, err)
	}

	for _, c := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"get", "nobody"}, 1, "unknown_tag"},
		{[]string{"get", "a b"}, 1, "bad_tag"},
		{[]string{"get", "order", "-n", "0"}, 2, "--count"},
		{[]string{"get", "order", "-n", "-1"}, 2, "--count"},
		{[]string{"get", "order", "-n", "many"}, 2, "many"},
		{[]string{"get", "order", "--ranges", "--json"}, 2, "json"},
		{[]string{"get"}, 2, "arg"},
		{[]string{"get", "order", "coupon"}, 2, "arg"},
		{[]string{"get", "order", "--nope"}, 2, "--nope"},
		{[]string{"get", "order", "--output", filepath.Join(file, "below")}, 1, "ids.txt"},
	} {
		r := leaf(t, append(c.args, server...)...)
		r.want(t, c.status, c.stderr)
		if r.stdout != "" {
			t.Errorf("leaf %v writes %q to stdout", c.args, r.stdout)
		}
	}
	for _, c := range []struct {
		args   []string
		status int
		reason string
	}{
		{[]string{"get", "nobody"}, 1, "unknown_tag"},
		{[]string{"get", "order", "-n", "0"}, 2, ""},
		{[]string{"get", "order", "--nope"}, 2, ""},
		{[]string{"get", "order", "-s", testkit.FreeAddress(t)}, 3, ""},
	} {
		r := leaf(t, append(append([]string{c.args[0]}, server...), append(c.args[1:], "--json")...)...)
		said := parse[struct {
			Error struct {
				Message, Reason string
				Code            int
			}
		}](t, []byte(r.stderr)).Error
		if r.status != c.status || said.Message == "" || said.Reason != c.reason {
			t.Errorf("leaf %v --json: exit status %d, %s", c.args, r.status, r.stderr)
		}
	}
	// A large number that ends early: whole lines, and how many.
	g.stop()
	leaf(t, "get", "order", "-s", g.url).want(t, 3, g.url, "leaf serve")
}

// Fewer IDs a request than leaf get likes to ask for.
func TestGetFromASmallGenerator(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order", "--max-batch", "77")
	out := leafOK(t, "get", "order", "-n", "1000", "-s", g.url)
	var l lines
	fmt.Fprint(&l, out)
	if l.count != 1000 || l.err != nil {
		t.Errorf("%d lines came: %v", l.count, l.err)
	}
}

func TestTagCommands(t *testing.T) {
	t.Parallel()
	g := embed(t)
	tag := func(args ...string) string {
		t.Helper()
		return leafOK(t, append(append([]string{"tag"}, args...), "-s", g.url)...)
	}
	record := func(args ...string) tagRecord {
		t.Helper()
		r := parse[tagRecord](t, []byte(tag(append(args, "--json")...)))
		r.Updated = ""
		return r
	}
	if out := tag("add", "order", "--description", "orders\tof the\x1bshop"); !strings.Contains(out, "order") || strings.Contains(out, "\x1b") {
		t.Errorf("tag add: %q", out)
	}
	if got, want := record("add", "shop.a", "--step", "50", "--max-id", "9007199254740993"), (tagRecord{Tag: "shop.a", MaxID: "9007199254740993", Step: 50}); got != want {
		t.Errorf("tag add: %+v, want %+v", got, want)
	}
	for _, name := range []string{"show", "info"} {
		if got := record(name, "shop.a"); got.MaxID != "9007199254740993" {
			t.Errorf("tag %s: %+v", name, got)
		}
	}
	for _, name := range []string{"list", "ls"} {
		out := tag(name)
		if rows := strings.Split(strings.TrimSpace(out), "\n"); len(rows) != 3 || !strings.HasPrefix(rows[0], "TAG") ||
			!strings.HasPrefix(rows[1], "order ") || !strings.HasPrefix(rows[2], "shop.a ") {
			t.Errorf("tag %s:\n%s", name, out)
		}
	}
	for _, args := range [][]string{{"--prefix", "shop."}, {"--contains", "p.a"}, {"--prefix", "s", "--contains", "a"}} {
		page := parse[tagPage](t, []byte(tag(append([]string{"list", "--json"}, args...)...)))
		if len(page.Tags) != 1 || page.Tags[0].Tag != "shop.a" {
			t.Errorf("tag list %v: %+v", args, page)
		}
	}
	if got := record("set", "shop.a", "--step", "60"); got.Step != 60 || got.MaxID != "9007199254740993" {
		t.Errorf("tag set: %+v", got)
	}
	if got := record("edit", "shop.a", "--max-id", "9007199254741000", "--description", "d"); got.Step != 60 || got.MaxID != "9007199254741000" || got.Description != "d" {
		t.Errorf("tag edit: %+v", got)
	}
	if out := tag("rm", "shop.a", "--yes"); !strings.Contains(out, "9007199254741000") {
		t.Errorf("tag rm: %q", out)
	}
	for _, c := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"show", "shop.a"}, 1, "unknown_tag"},
		{[]string{"rm", "shop.a"}, 1, "unknown_tag"},
		{[]string{"set", "shop.a", "--step", "5"}, 1, "unknown_tag"},
		{[]string{"add", "order"}, 1, "exists"},
		{[]string{"add", "a b"}, 1, "bad_tag"},
		{[]string{"add", "new", "--step", "0"}, 1, "bad_request"},
		{[]string{"set", "order", "--max-id", "0"}, 2, "--max-id"},
		{[]string{"set", "order"}, 2, "--max-id"},
		{[]string{"set"}, 2, "arg"},
		{[]string{"add", "new", "--step", "x"}, 2, "--step"},
	} {
		leaf(t, append(append([]string{"tag"}, c.args...), "-s", g.url)...).want(t, c.status, c.stderr)
	}
	leaf(t, "tag", "nope").want(t, 2, "nope")
	if got := record("add", "shop.a"); got.MaxID != "9007199254741000" {
		t.Errorf("created again: %+v", got)
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order", "--node", "one")
	second := serve(t, t.TempDir(), "-s", g.url, "--node", "two")
	nc := connect(t, g.url)
	granted(t, ask(t, nc, "leaf.segment.order", "100"))
	out := parse[struct {
		Nodes []bus.State
		Lost  []bus.LostNode
	}](t, []byte(leafOK(t, "nodes", "--json", "-s", g.url)))
	var ids int64
	for _, s := range out.Nodes {
		ids += s.Counts.IDs
	}
	if len(out.Nodes) != 2 || out.Nodes[0].Node != "one" || out.Nodes[1].Node != "two" || !out.Nodes[0].Ready || ids != 100 {
		t.Errorf("nodes: %+v", out)
	}
	if text := leafOK(t, "nodes", "-s", g.url); strings.Count(text, "\n") != 3 || strings.Count(text, "ready") != 2 {
		t.Errorf("nodes:\n%s", text)
	}
	second.stop()
	g.stop()
	empty := newNATS(t)
	leaf(t, "nodes", "-s", empty.ClientURL()).want(t, 3, "no generator")
}

// cloudEvent is an event in the form of one JSON object.
type cloudEvent struct {
	SpecVersion, ID, Source, Type, Subject, Time, DataContentType, Severity string
	Data                                                                    json.RawMessage
}

func TestEventsCommand(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:10", "--max-step", "10", "--max-wait", "2s")
	nc := connect(t, g.url)
	js := jetStream(t, nc)
	granted(t, ask(t, nc, "leaf.segment.order", ""))
	follow := func(args ...string) *process {
		t.Helper()
		return start(t, command(t, t.TempDir(), nil, append(append([]string{"events"}, args...), "-s", g.url)))
	}
	read := func(p *process) (all []cloudEvent) {
		t.Helper()
		out := p.stdout.String()
		for line := range strings.Lines(out[:strings.LastIndexByte(out, '\n')+1]) {
			all = append(all, parse[cloudEvent](t, []byte(line)))
		}
		return all
	}
	has := func(p *process, kind string) bool {
		for _, e := range read(p) {
			if e.Type == kind {
				return true
			}
		}
		return false
	}
	eventConsumer(t, js, bus.EventSubjects) // the stream is there
	all, alerts, text := follow("--since", "1h", "--json"), follow("--since", "1h", "--alerts", "--json"), follow("--since", "1h")
	now := follow("--json")
	for _, kind := range []string{"leaf.node.started", "leaf.tag.created", "leaf.segment.refill"} {
		testkit.Eventually(t, kind, func() bool { return has(all, kind) })
	}
	breakStore(t, js, true)
	testkit.Eventually(t, "a refusal", func() bool {
		msg := ask(t, nc, "leaf.segment.order", "5")
		return len(msg.Header) > 0
	})
	testkit.Eventually(t, "the alerts", func() bool {
		return has(alerts, "leaf.segment.refill_failed") && has(all, "leaf.segment.refill_failed") && has(alerts, "leaf.segment.starved")
	})
	testkit.Eventually(t, "the alert as text", func() bool {
		return regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)  alert  segment\.starved +order +node=\S+ waiting=\d+$`).MatchString(text.stdout.String())
	})
	for _, e := range read(all) {
		if _, err := time.Parse(time.RFC3339, e.Time); err != nil || e.SpecVersion != "1.0" || e.ID == "" ||
			e.Source != "/leaf/"+g.node || e.Subject == "" || e.DataContentType != "application/json" || !json.Valid(e.Data) {
			t.Errorf("event %+v: %v", e, err)
		}
	}
	for _, e := range read(alerts) {
		if e.Severity != "alert" {
			t.Errorf("with --alerts: %+v", e)
		}
	}
	// Without --since it begins now, whenever that was exactly.
	breakStore(t, js, false)
	tags := 0
	testkit.Eventually(t, "a new event", func() bool {
		tags++
		granted(t, ask(t, nc, bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":"new.t%d","step":10}`, tags)))
		return has(now, "leaf.tag.created")
	})
	for _, e := range read(now) {
		if e.Type == "leaf.node.started" {
			t.Errorf("without --since: %+v", e)
		}
	}
	// An interrupt is how it ends.
	for _, p := range []*process{all, alerts, text, now} {
		p.signal(syscall.SIGINT)
		if status := p.wait(patience); status != 0 {
			t.Errorf("exit status %d after an interrupt", status)
		}
	}
	leaf(t, "events", "--since", "-1h", "-s", g.url).want(t, 2, "--since")
	leaf(t, "events", "-s", newNATS(t).ClientURL()).want(t, 1, "LEAF_EVENTS")
}

// leaf get ends early when nobody answers any more: what it wrote are whole
// lines, and it says how many.
func TestGetThatEndsEarly(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	cmd := command(t, t.TempDir(), nil, []string{"get", "order", "-n", "1000000000", "-s", g.url, "--timeout", "1s"})
	var l lines
	got := make(chan struct{}, 1)
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		select {
		case got <- struct{}{}:
		default:
		}
		return l.Write(p)
	})
	p := start(t, cmd)
	<-got
	g.kill()
	status := p.wait(patience)
	result{status, "", p.stderr.String()}.want(t, 1, "of 1000000000 IDs were written")
	var said int64
	if m := regexp.MustCompile(`(\d+) of 1000000000`).FindStringSubmatch(p.stderr.String()); m != nil {
		said, _ = strconv.ParseInt(m[1], 10, 64)
	}
	if l.err != nil || l.number != 0 || said != l.count || l.count == 0 {
		t.Errorf("%d whole lines came (%v), and %d more of the next; it says %d", l.count, l.err, l.number, said)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
