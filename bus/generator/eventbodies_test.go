package generator

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
)

var (
	aTag  = bus.TagRecord{Tag: "a.b", MaxID: 7, Step: 10, Description: "x < y", Updated: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	aHeld = snowflake.Held{Worker: 0, ReservedUntil: 1_700_000_000_000}

	allocatorBodies = []struct {
		event allocator.Event
		body  any
	}{
		{
			allocator.Refilled{Tag: "a.b", Range: bus.Range{First: 1 << 60, Last: 1<<60 + 99}, Step: 100, Cause: allocator.CauseBatch, Elapsed: 1500 * time.Microsecond},
			bus.RefillEvent{Node: "n", Tag: "a.b", First: 1 << 60, Last: 1<<60 + 99, Step: 100, Cause: allocator.CauseBatch, ElapsedMS: 1.5},
		},
		{allocator.RefillFailed{Tag: "a", Err: errors.New("x < y"), Left: 7}, bus.RefillFailedEvent{Node: "n", Tag: "a", Error: "x < y", Left: 7}},
		{allocator.Ending{Tag: "a.b", Left: 5, Limit: 9}, bus.EndingEvent{Node: "n", Tag: "a.b", Left: 5, Limit: 9}},
		{allocator.Starved{Tag: "a", Waiting: 3}, bus.StarvedEvent{Node: "n", Tag: "a", Waiting: 3}},
		{
			allocator.Regressed{Tag: "a", Got: -5, Seen: 9, Action: allocator.Advanced},
			bus.RegressedEvent{Node: "n", Tag: "a", Store: "kv", Got: -5, Seen: 9, Action: allocator.Advanced},
		},
		{
			allocator.Regressed{Tag: "a", Got: 5, Seen: 9, Action: allocator.Refused, InDoubt: bus.Range{First: 5, Last: 8}},
			bus.RegressedEvent{Node: "n", Tag: "a", Store: "kv", Got: 5, Seen: 9, Action: allocator.Refused, First: 5, Last: 8},
		},
		{allocator.Recovered{Tag: "a", Episode: "starved"}, bus.RecoveredEvent{Node: "n", Tag: "a", Episode: "starved"}},
	}
	snowflakeBodies = []struct {
		event snowflake.Event
		body  any
	}{
		{
			snowflake.ClockBackwards{Worker: 7, Offset: 3, Last: 1003, Now: 1000, Action: snowflake.Waited},
			bus.ClockBackwardsEvent{Node: "n", Worker: 7, OffsetMS: 3, LastMS: 1003, NowMS: 1000, Action: snowflake.Waited},
		},
		{
			snowflake.ClockSkewed{Now: 5000, Peers: 2010, Threshold: 1500 * time.Millisecond},
			bus.ClockSkewedEvent{Node: "n", NowMS: 5000, PeersMS: 2010, ThresholdMS: 1500},
		},
		{
			snowflake.ClockSkewed{Now: 5000, Recorded: 12_000, Threshold: time.Second},
			bus.ClockSkewedEvent{Node: "n", NowMS: 5000, RecordedMS: 12_000, ThresholdMS: 1000},
		},
		{
			snowflake.WorkerAcquired{Held: aHeld, From: 5, After: 4},
			bus.WorkerEvent{Node: "n", Worker: 0, Registry: "kv", FromMS: 5, AfterMS: 4, ReservedUntilMS: 1_700_000_000_000},
		},
		{snowflake.WorkerReleased{Held: aHeld}, bus.WorkerEvent{Node: "n", Worker: 0, Registry: "kv", ReservedUntilMS: 1_700_000_000_000}},
		{snowflake.WorkerLost{Held: aHeld, Until: 6}, bus.WorkerEvent{Node: "n", Worker: 0, Registry: "kv", UntilMS: 6, ReservedUntilMS: 1_700_000_000_000}},
		{snowflake.WorkerExpiring{Held: aHeld}, bus.WorkerEvent{Node: "n", Worker: 0, Registry: "kv", ReservedUntilMS: 1_700_000_000_000}},
		{snowflake.Ending{Worker: 7, End: 9000}, bus.WorkerEndingEvent{Node: "n", Worker: 7, EndMS: 9000}},
		{snowflake.Recovered{Worker: 0, Episode: snowflake.EpisodeBackwards}, bus.RecoveredEvent{Node: "n", Worker: new(int64), Episode: "backwards"}},
		{snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeLost}, bus.RecoveredEvent{Node: "n", Worker: new(int64(7)), Episode: "lost"}},
	}
	otherBodies = []struct {
		kind string
		body any
	}{
		{"segment.shadowed", bus.ShadowedEvent{Node: "n", Tag: "a.b"}},
		{"ledger.replaced", bus.LedgerReplacedEvent{Node: "n", Cause: "x < y"}},
		{"ledger.unavailable", bus.LedgerUnavailableEvent{Node: "n", Error: "x < y", SinceMS: 1_700_000_000_000}},
		{"ledger.recovered", bus.RecoveredEvent{Node: "n", Episode: "unavailable"}},
		{"nats.degraded", bus.NATSDegradedEvent{Node: "n", Cause: "x < y"}},
		{"nats.recovered", bus.RecoveredEvent{Node: "n", Episode: "degraded"}},
		{"tag.created", bus.TagEvent{Node: "n", TagRecord: aTag}},
		{"tag.updated", bus.TagEvent{Node: "n", TagRecord: aTag}},
		{"tag.deleted", bus.TagEvent{Node: "n", TagRecord: aTag}},
		{"node.stale", bus.StaleEvent{Node: "n", Error: "away"}},
		{"node.lost", bus.LostEvent{Node: "n", Run: "r", LastHeardMS: 1_700_000_000_000, Worker: new(int64(7)), UntilMS: 1_700_000_000_001}},
		{"node.recovered", bus.RecoveredEvent{Node: "n", Episode: "stale"}},
		{"node.started", bus.NodeEvent{Node: "n", Version: "v1", Address: "nats://h:4222", Config: map[string]string{"tag": "a"}}},
		{"node.stopped", bus.NodeEvent{Node: "n", Version: "v1", Address: "nats://h:4222", Config: map[string]string{"tag": "a"}}},
	}
)

// A follower of events gets the body that a generator published, for each type of event. A new type
// must be in the tables above, and so in eventTypes.
func TestBodies(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool) // by kind and what
	check := func(msg *nats.Msg, want any) {
		t.Helper()
		e, err := bus.ParseEvent(msg.Subject, msg.Header, msg.Data)
		if err != nil || !reflect.DeepEqual(e.Body, want) {
			t.Errorf("%s %s has the body %#v, %v; want %#v", msg.Subject, msg.Data, e.Body, err, want)
		}
		seen[strings.TrimPrefix(e.Type, "leaf.")] = true
	}
	sources := make(map[string]bool)
	for _, c := range allocatorBodies {
		check(allocatorEvent("n", "kv", c.event), c.body)
		sources[reflect.TypeOf(c.event).String()] = true
	}
	sources["allocator.Claimed"] = true // for metrics alone
	for _, c := range snowflakeBodies {
		check(snowflakeEvent("n", "kv", c.event), c.body)
		sources[reflect.TypeOf(c.event).String()] = true
	}
	for _, c := range otherBodies {
		check(newEvent(c.kind, "a.b", "n", c.body), c.body)
	}

	// Each published event is in a table.
	for _, pkg := range []string{"allocator", "snowflake"} {
		found := 0
		for _, decl := range declarations(t, filepath.Join("..", "..", pkg)) {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "event" {
				found++
				if name := pkg + "." + f.Recv.List[0].Type.(*ast.Ident).Name; !sources[name] {
					t.Errorf("the event %s is in no table", name)
				}
			}
		}
		if found == 0 {
			t.Errorf("no events were found in %s", pkg)
		}
	}
	published := 0
	for _, decl := range declarations(t, ".") {
		ast.Inspect(decl, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			if f, ok := call.Fun.(*ast.Ident); !ok || f.Name != "newEvent" && f.Name != "of" {
				return true
			}
			if kind, ok := literal(call.Args[0]); ok {
				published++
				known := false
				for what := range seen {
					known = known || what == kind || strings.HasSuffix(kind, ".") && strings.HasPrefix(what, kind)
				}
				if !known {
					t.Errorf("the event %s is in no table", kind)
				}
			}
			return true
		})
	}
	if published == 0 {
		t.Error("no events were found in this package")
	}
	for what := range bus.EventTypes() {
		what = strings.TrimPrefix(what, "leaf.")
		if !seen[what] {
			t.Errorf("%s is never published, or is in no table", what)
		}
	}
}

// literal returns the text of an expression that is one, or that begins with one.
func literal(e ast.Expr) (text string, ok bool) {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		e = sum.X
	}
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// declarations returns what the files of a folder declare, without its tests.
func declarations(t *testing.T, dir string) (all []ast.Decl) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file.Decls...)
	}
	return all
}

// When a process started stands beside the body.
func TestStartedOfANodeEvent(t *testing.T) {
	t.Parallel()
	server := natskit.Start(t)
	nc := natskit.Connect(t, server)
	g := New(Config{Conn: nc, Node: "n", Log: testkit.Quiet, Snowflake: snowflake.Config{Layout: snowflake.DefaultLayout()}})
	msg := g.nodeEvent("started")
	e, err := bus.ParseEvent(msg.Subject, msg.Header, msg.Data)
	if body, ok := e.Body.(bus.NodeEvent); err != nil || !ok || !body.Started.Equal(g.made) {
		t.Errorf("%+v, %v; it started at %v", e.Body, err, g.made)
	}
}
