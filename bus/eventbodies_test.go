package bus

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
)

var (
	aTag  = TagRecord{Tag: "a.b", MaxID: 7, Step: 10, Description: "x < y", Updated: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	aHeld = snowflake.Held{Worker: 0, ReservedUntil: 1_700_000_000_000}

	allocatorBodies = []struct {
		event allocator.Event
		body  any
	}{
		{
			allocator.Refilled{Tag: "a.b", Range: Range{First: 1 << 60, Last: 1<<60 + 99}, Step: 100, Cause: allocator.CauseBatch, Elapsed: 1500 * time.Microsecond},
			RefillEvent{Node: "n", Tag: "a.b", First: 1 << 60, Last: 1<<60 + 99, Step: 100, Cause: allocator.CauseBatch, ElapsedMS: 1.5},
		},
		{allocator.RefillFailed{Tag: "a", Err: errors.New("x < y"), Left: 7}, RefillFailedEvent{Node: "n", Tag: "a", Error: "x < y", Left: 7}},
		{allocator.Starved{Tag: "a", Waiting: 3}, StarvedEvent{Node: "n", Tag: "a", Waiting: 3}},
		{allocator.Regressed{Tag: "a", Got: -5, Seen: 9}, RegressedEvent{Node: "n", Tag: "a", Got: -5, Seen: 9}},
		{allocator.Recovered{Tag: "a", Episode: "starved"}, RecoveredEvent{Node: "n", Tag: "a", Episode: "starved"}},
	}
	snowflakeBodies = []struct {
		event snowflake.Event
		body  any
	}{
		{
			snowflake.ClockBackwards{Worker: 7, Offset: 3, Last: 1003, Now: 1000, Action: snowflake.Waited},
			ClockBackwardsEvent{Node: "n", Worker: 7, OffsetMS: 3, LastMS: 1003, NowMS: 1000, Action: snowflake.Waited},
		},
		{
			snowflake.ClockSkewed{Now: 5000, Peers: 2010, Threshold: 1500 * time.Millisecond},
			ClockSkewedEvent{Node: "n", NowMS: 5000, PeersMS: 2010, ThresholdMS: 1500},
		},
		{
			snowflake.ClockSkewed{Now: 5000, Recorded: 12_000, Threshold: time.Second},
			ClockSkewedEvent{Node: "n", NowMS: 5000, RecordedMS: 12_000, ThresholdMS: 1000},
		},
		{snowflake.WorkerAcquired{Held: aHeld}, WorkerEvent{"n", 0, "kv", 1_700_000_000_000}},
		{snowflake.WorkerReleased{Held: aHeld}, WorkerEvent{"n", 0, "kv", 1_700_000_000_000}},
		{snowflake.WorkerLost{Held: aHeld}, WorkerEvent{"n", 0, "kv", 1_700_000_000_000}},
		{snowflake.WorkerExpiring{Held: aHeld}, WorkerEvent{"n", 0, "kv", 1_700_000_000_000}},
		{snowflake.Ending{Worker: 7, End: 9000}, WorkerEndingEvent{Node: "n", Worker: 7, EndMS: 9000}},
		{snowflake.Recovered{Worker: 0, Episode: snowflake.EpisodeBackwards}, RecoveredEvent{Node: "n", Worker: new(int64), Episode: "backwards"}},
		{snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeLost}, RecoveredEvent{Node: "n", Worker: new(int64(7)), Episode: "lost"}},
	}
	otherBodies = []struct {
		kind string
		body any
	}{
		{"nats.degraded", NATSDegradedEvent{"n", "x < y"}},
		{"nats.recovered", RecoveredEvent{Node: "n", Episode: "degraded"}},
		{"tag.created", TagEvent{"n", aTag}},
		{"tag.updated", TagEvent{"n", aTag}},
		{"tag.deleted", TagEvent{"n", aTag}},
		{"node.stale", StaleEvent{"n", "away"}},
		{"node.recovered", RecoveredEvent{Node: "n", Episode: "stale"}},
		{"node.started", NodeEvent{Node: "n", Version: "v1", Address: "nats://h:4222", Config: map[string]string{"tag": "a"}}},
		{"node.stopped", NodeEvent{Node: "n", Version: "v1", Address: "nats://h:4222", Config: map[string]string{"tag": "a"}}},
	}
)

// Whoever follows gets the body that a generator told, of every event that
// there is. A new one must be in the tables above, and so in eventTypes.
func TestBodies(t *testing.T) {
	seen := make(map[string]bool) // by kind and what
	check := func(msg *nats.Msg, want any) {
		t.Helper()
		e, err := ParseEvent(msg.Subject, msg.Header, msg.Data)
		if err != nil || !reflect.DeepEqual(e.Body, want) {
			t.Errorf("%s %s has the body %#v, %v; want %#v", msg.Subject, msg.Data, e.Body, err, want)
		}
		seen[strings.TrimPrefix(e.Type, "leaf.")] = true
	}
	sources := make(map[string]bool)
	for _, c := range allocatorBodies {
		check(allocatorEvent("n", c.event), c.body)
		sources[reflect.TypeOf(c.event).String()] = true
	}
	for _, c := range snowflakeBodies {
		check(snowflakeEvent("n", "kv", c.event), c.body)
		sources[reflect.TypeOf(c.event).String()] = true
	}
	for _, c := range otherBodies {
		check(newEvent(c.kind, "a.b", "n", c.body), c.body)
	}

	// Nothing is told that is in no table.
	for _, pkg := range []string{"allocator", "snowflake"} {
		found := 0
		for _, decl := range declarations(t, filepath.Join("..", pkg)) {
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
	told := 0
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
				told++
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
	if told == 0 {
		t.Error("no events were found in this package")
	}
	for what := range eventTypes {
		if !seen[what] {
			t.Errorf("%s is never told, or in no table", what)
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

// A newer generator may say more, and tell what is not known here. What is
// known and does not fit is no event.
func TestBodiesOfOthers(t *testing.T) {
	for _, c := range []struct {
		what, data string
		body       any
		bad        bool
	}{
		{"segment.starved", `{"node":"n","tag":"a","waiting":3,"new":{"x":1}}`, StarvedEvent{"n", "a", 3}, false},
		{"segment.starved", `{"node":"n"}`, StarvedEvent{Node: "n"}, false},
		{"segment.moved", `{"node":"n"}`, nil, false},
		{"segment.moved", `[]`, nil, false},
		{"starved.segment", `{"waiting":"x"}`, nil, false},
		{"segment.starved", `{"waiting":"x"}`, nil, true},
		{"segment.refill", `{"first":1}`, nil, true}, // IDs are strings
		{"segment.starved", `[]`, nil, true},
		{"segment.starved", `null`, nil, true},
		{"segment.starved", ` null `, nil, true},
		{"tag.created", `{"tag":"a","max_id":"x"}`, nil, true},
	} {
		e, err := ParseEvent("leaf.events.alert."+c.what+".a", nats.Header{headerTime: {"2026-01-02T03:04:05Z"}}, []byte(c.data))
		if c.bad {
			if !errors.Is(err, ErrNotAnEvent) || !strings.Contains(err.Error(), c.what) {
				t.Errorf("%s %s: %v, want that it is no event", c.what, c.data, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(e.Body, c.body) || string(e.Data) != c.data {
			t.Errorf("%s %s: %#v, %v; want %#v", c.what, c.data, e, err, c.body)
		}
	}
}

// When a process started stands beside the body.
func TestStartedOfANodeEvent(t *testing.T) {
	g := NewGenerator(Config{Conn: newUnderTest(t).nc, Node: "n", Log: slog.New(slog.DiscardHandler), Snowflake: snowflake.Config{Layout: snowflake.DefaultLayout()}})
	msg := g.nodeEvent("started")
	e, err := ParseEvent(msg.Subject, msg.Header, msg.Data)
	if body, ok := e.Body.(NodeEvent); err != nil || !ok || !body.Started.Equal(g.made) {
		t.Errorf("%+v, %v; it started at %v", e.Body, err, g.made)
	}
}
