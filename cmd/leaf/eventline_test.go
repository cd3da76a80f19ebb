package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/events"
)

func TestEventLine(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	const head = "2026-01-02T03:04:05.006Z  "
	for name, c := range map[string]struct {
		severity, kind, key, data string
		want                      string
	}{
		"a refill": {"info", "segment.refill", "order", `{"node":"n1","tag":"order","first":"1","last":"1000","step":1000,"cause":"demand","elapsed_ms":1.2346}`,
			"info   segment.refill         order                 node=n1 first=1 last=1000 step=1000 cause=demand elapsed=1.235ms"},
		"an alert": {"alert", "segment.refill_failed", "order", `{"node":"n1","tag":"order","error":"no \"room\"\nleft","left":5}`,
			`alert  segment.refill_failed  order                 node=n1 error="no \"room\"\nleft" left=5`},
		"times": {"alert", "node.lost", "n2", `{"node":"n2","run":"R","last_heard_ms":1767323045006,"until_ms":1767323046006}`,
			"alert  node.lost              n2                    run=R last_heard=2026-01-02T03:04:05.006Z until=2026-01-02T03:04:06.006Z"},
		"nested":      {"info", "tag.updated", "a", `{"node":"n","tag":"a","quota":{"per_second":5,"burst":9},"description":""}`, `info   tag.updated            a                     node=n quota.per_second=5 quota.burst=9 description=""`},
		"a long key":  {"info", "x.y", "a.key.of.more.than.twenty", `{"a":1}`, "info   x.y                    a.key.of.more.than.twenty  a=1"},
		"a bad actor": {"info", "x.\x1b[31my", "k\x1b", `{"a":"\u001b[2J"}`, "info   x. [31my               k                     a= [2J"},
	} {
		e := events.Event{Severity: c.severity, Type: "leaf." + c.kind, Key: c.key, Time: at, Data: json.RawMessage(c.data)}
		if got := eventLine(e, false); got != head+c.want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, head+c.want)
		}
	}
	e := events.Event{Severity: "alert", Type: "leaf.node.lost", Key: "n", Time: at, Data: json.RawMessage(`{}`)}
	if got, want := eventLine(e, true), head+"\x1b[31malert  node.lost            \x1b[0m  n"; got != want {
		t.Errorf("an alert on a terminal is %q, want %q", got, want)
	}
}

// A body of any sender makes a line, and only one.
func FuzzEventDetails(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":{"b":[1,{"c":2}]},"x_ms":1e300}`, `null`, `"\n"`, `{"a_ms":-5,"":1}`, `{"a":`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		line := eventLine(events.Event{Severity: "info", Type: "leaf.a.b", Key: "k", Data: json.RawMessage(data)}, false)
		for _, r := range line {
			if r < ' ' {
				t.Fatalf("%q has a control character", line)
			}
		}
	})
}
