package main

import (
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/events"
)

func TestEpisodes(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	event := func(id string, second int64, severity, what, node, key string, body any) events.Event {
		return events.Event{
			ID: id, Time: at(second), Severity: severity, Type: "leaf." + what, Source: "/leaf/" + node, Key: key, Body: body,
		}
	}
	alert := func(id, what, node, key string, body any) events.Event {
		return event(id, 5, "alert", what, node, key, body)
	}
	over := func(what, node, key, episode string) events.Event {
		return event("over", 9, "info", what, node, key, events.Recovered{Episode: episode})
	}
	starved := alert("1", "segment.starved", "n0", "order", events.Starved{})
	lost := alert("1", "node.lost", "n0", "n1", events.Lost{UntilMS: at(100).UnixMilli()})
	for _, test := range []struct {
		name   string
		events []events.Event
		want   int // alerts that last at second 50, when only n0 runs
	}{
		{"an alert lasts", []events.Event{starved}, 1},
		{"its end comes", []events.Event{starved, over("segment.recovered", "n0", "order", "starved")}, 0},
		{"the end of another tag", []events.Event{starved, over("segment.recovered", "n0", "stock", "starved")}, 1},
		{"the end of another generator", []events.Event{starved, over("segment.recovered", "n1", "order", "starved")}, 1},
		{"the end of another episode", []events.Event{starved, over("segment.recovered", "n0", "order", "regressed")}, 1},
		{"it begins again", []events.Event{starved, over("segment.recovered", "n0", "order", "starved"),
			alert("2", "segment.starved", "n0", "order", nil)}, 1},
		{"the alert comes again after its end", []events.Event{
			starved, over("segment.recovered", "n0", "order", "starved"), starved,
		}, 0},
		{"a start ends it", []events.Event{
			starved, event("2", 7, "info", "node.started", "n0", "n0", events.Node{Started: at(6)}),
		}, 0},
		{"the process published it before its start", []events.Event{
			starved, event("2", 7, "info", "node.started", "n0", "n0", events.Node{Started: at(4)}),
		}, 1},
		{"a worker ends no alert of a tag", []events.Event{
			starved, event("2", 7, "info", "worker.acquired", "n0", "3", events.Worker{}),
		}, 1},
		{"a worker ends one of a clock", []events.Event{alert("1", "clock.backwards", "n0", "3", nil),
			event("2", 7, "info", "worker.acquired", "n0", "3", events.Worker{})}, 0},
		{"a stop ends it", []events.Event{alert("1", "clock.skewed", "n0", "n0", nil),
			event("2", 7, "info", "node.stopped", "n0", "n0", events.Node{})}, 0},
		{"lost, and its reservation lasts", []events.Event{lost}, 0},
		{"lost, and its reservation is over", []events.Event{
			alert("1", "node.lost", "n0", "n1", events.Lost{UntilMS: at(40).UnixMilli()}),
		}, 1},
		{"lost, and it runs", []events.Event{
			alert("1", "node.lost", "n1", "n0", events.Lost{UntilMS: at(100).UnixMilli()}),
		}, 1},
		{"lost, and another one published its end", []events.Event{
			alert("1", "node.lost", "n1", "n0", events.Lost{}), over("node.recovered", "n2", "n0", "lost"),
		}, 0},
		{"lost, and the one that published it started again", []events.Event{
			alert("1", "node.lost", "n1", "n0", events.Lost{UntilMS: at(100).UnixMilli()}),
			event("2", 7, "info", "node.started", "n1", "n1", events.Node{Started: at(6)}),
		}, 0},
		{"an operator's limit", []events.Event{alert("1", "segment.ending", "n0", "order", events.Ending{})}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newEpisodes()
			for _, e := range test.events {
				s.add(e)
			}
			if got := s.lasting(at(50), func(node string) bool { return node == "n0" }); len(got) != test.want {
				t.Errorf("%d alerts last: %v, want %d", len(got), got, test.want)
			}
		})
	}
}

func TestLeak(t *testing.T) {
	moments := func(every time.Duration, goroutines ...int) (all []sample) {
		for i, n := range goroutines {
			at := time.Unix(0, 0).Add(time.Duration(i) * every)
			all = append(all, sample{at: at, Megabytes: 50, Descriptors: 30, Goroutines: n})
		}
		return all
	}
	for _, test := range []struct {
		name string
		all  []sample
		leak bool
	}{
		{"flat", moments(time.Minute, 200, 220, 190, 230, 210, 205), false},
		{"one high moment", moments(time.Minute, 200, 200, 200, 200, 200, 900), false},
		{"it grows", moments(time.Minute, 200, 250, 300, 350, 400, 450), true},
		{"too few moments", moments(time.Minute, 200, 400, 600, 800, 1000), false},
		{"too short", moments(time.Second, 200, 400, 600, 800, 1000, 1200), false},
		{"unknown", moments(time.Minute, 0, 0, 0, 0, 0, 0), false},
	} {
		if text := leak(test.all); (text != "") != test.leak {
			t.Errorf("%s: %q", test.name, text)
		}
	}
	grown := moments(time.Minute, 9, 9, 9, 9, 9, 9)
	for i := range grown {
		grown[i].Descriptors += i * 50
	}
	if text := leak(grown); !strings.Contains(text, "descriptors") {
		t.Errorf("descriptors grow: %q", text)
	}
}

func TestCompareNumbers(t *testing.T) {
	before := map[bus.ID]bus.ID{70: 1}
	for _, test := range []struct {
		name    string
		numbers map[bus.ID]bus.ID
		want    string // in the text; empty: all is well
	}{
		{"well", map[bus.ID]bus.ID{70: 1, 80: 9}, ""},
		{"another number", map[bus.ID]bus.ID{70: 2, 80: 9}, "had 1"},
		{"the same number", map[bus.ID]bus.ID{70: 1, 80: 1}, "the same number"},
		{"above the end", map[bus.ID]bus.ID{70: 1, 80: 10}, "ends below 10"},
		{"none", map[bus.ID]bus.ID{70: 1}, "no number"},
	} {
		text := compareNumbers(before, []bus.ID{70, 80}, test.numbers, 10)
		if (text == "") != (test.want == "") || !strings.Contains(text, test.want) {
			t.Errorf("%s: %q, want %q", test.name, text, test.want)
		}
	}
}

func TestReadAnswers(t *testing.T) {
	found, err := contradictions(`{"tags":[{}],"contradictions":[{"kind":"overlap","tag":"order","message":"twice"}]}`)
	if err != nil || len(found) != 1 || found[0].Kind != audit.Overlap || found[0].Tag != "order" {
		t.Errorf("contradictions: %v, %v", found, err)
	}
	for _, wrong := range []string{"", `{"contradictions":[]}`} {
		if _, err := contradictions(wrong); err == nil {
			t.Errorf("an audit that printed %q is taken for one that agrees", wrong)
		}
	}
	numbers, err := readRevealed(`{"tag":"coupon","ids":[{"id":"70","number":"1"}]}`)
	if err != nil || numbers[70] != 1 {
		t.Errorf("numbers: %v, %v", numbers, err)
	}
}

func TestTable(t *testing.T) {
	one := newRow("kill")
	one.Strikes, one.Settled = 1, 2
	one.Callers["raw"] = &met{Calls: 10, Failed: 1, Gap: 3, Reasons: map[string]int64{"draining": 1}}
	one.Shown[byAlert], one.Hidden[byNodes] = 4, 1
	sum := table{rows: map[string]*row{"kill": newRow("kill"), "freeze + kill": newRow("freeze + kill")}}
	sum.rows["kill"].add(one)
	sum.rows["kill"].add(one)
	sum.rows["freeze + kill"].add(one)
	x := sum.rows["kill"]
	m := x.Callers["raw"]
	if m.Calls != 20 || m.Failed != 2 || m.Gap != 3 || m.Reasons["draining"] != 2 || x.Settled != 2 {
		t.Errorf("the sum is %+v, callers met %+v", x, m)
	}
	var text strings.Builder
	sum.print(&text)
	for _, want := range []string{"2/20", "1/10", "3.0 s", "4.0 s", several} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	for line := range strings.Lines(text.String()) {
		if len(line) > widest {
			t.Errorf("a line has %d columns: %s", len(line), line)
		}
	}
}

func TestAround(t *testing.T) {
	at := time.Unix(1000, 0)
	near := around([]note{
		{at.Add(-2 * time.Minute), "old"}, {at.Add(-time.Second), "before"}, {at.Add(time.Second), "after"},
	}, at)
	if len(near) != 2 || near[0].text != "before" || near[1].text != "after" {
		t.Errorf("around: %v", near)
	}
	if text := cut("aé", 2); text != "a…" {
		t.Errorf("cut: %q", text)
	}
}

// The lists name each other by words. A wrong word would make an entry that never runs.
func TestNamesExist(t *testing.T) {
	has := func(name string) bool {
		for _, f := range faults {
			if f.name == name {
				return true
			}
		}
		return false
	}
	for _, k := range known {
		if !has(k.fault) {
			t.Errorf("known.go: there is no fault %q", k.fault)
		}
	}
}
