package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/events"
)

func TestEventLine(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for _, c := range []struct {
		kind, key, data string
		want            string
	}{
		{"segment.refill", "order", `{"node":"n1","tag":"order","first":"1","last":"9","elapsed_ms":1.2}`,
			`alert  segment.refill         order                 elapsed_ms=1.2 first="1" last="9" node="n1"`},
		{"node.started", "n", `{"node":"n","config":{"a":"b"},"v":{"x":1}}`,
			`alert  node.started           n                     v={"x":1}`},
		{"x.\x1b[31my", "k\x1b", `{"a":"\u001b[2J"}`, `alert  x. [31my               k                     a="\u001b[2J"`},
		{"x.y", "k", `[`, `alert  x.y                    k`},
	} {
		e := events.Event{Severity: "alert", Type: "leaf." + c.kind, Key: c.key, Time: at, Data: json.RawMessage(c.data)}
		if got, want := eventLine(e), "2026-01-02T03:04:05.006Z  "+c.want; got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
