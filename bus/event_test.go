package bus

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
)

func TestAllocatorEvents(t *testing.T) {
	for _, c := range []struct {
		event         allocator.Event
		subject, body string
	}{
		{
			allocator.Refilled{Tag: "a.b", Range: Range{First: 1, Last: 100}, Step: 100, Cause: allocator.CauseDemand, Elapsed: 1500 * time.Microsecond},
			"leaf.events.info.segment.refill.a.b",
			`{"node":"n1","tag":"a.b","first":"1","last":"100","step":100,"cause":"demand","elapsed_ms":1.5}`,
		},
		{
			allocator.RefillFailed{Tag: "a", Err: errors.New("x < y"), Left: 7},
			"leaf.events.alert.segment.refill_failed.a",
			`{"node":"n1","tag":"a","error":"x < y","left":7}`,
		},
		{allocator.Starved{Tag: "a", Waiting: 3}, "leaf.events.alert.segment.starved.a", `{"node":"n1","tag":"a","waiting":3}`},
		{allocator.Regressed{Tag: "a", Got: 5, Seen: 9}, "leaf.events.alert.segment.regressed.a", `{"node":"n1","tag":"a","got":"5","seen":"9"}`},
		{
			allocator.Recovered{Tag: "a", Episode: "starved"}, "leaf.events.info.segment.recovered.a",
			`{"node":"n1","tag":"a","episode":"starved"}`,
		},
	} {
		msg := allocatorEvent("n1", c.event)
		if msg.Subject != c.subject || string(msg.Data) != c.body {
			t.Errorf("%T: %s %s, want %s %s", c.event, msg.Subject, msg.Data, c.subject, c.body)
		}
		e, err := ParseEvent(msg.Subject, msg.Header, msg.Data)
		if err != nil {
			t.Errorf("%T: %v", c.event, err)
			continue
		}
		if e.SpecVersion != "1.0" || e.ID == "" || e.ID != msg.Header.Get(nats.MsgIdHdr) || e.Source != "/leaf/n1" ||
			e.ContentType != "application/json" || e.Key != msg.Header.Get("ce-subject") || time.Since(e.Time) > time.Minute {
			t.Errorf("%T: %+v with header %v", c.event, e, msg.Header)
		}
		if want := "leaf." + c.subject[len("leaf.events.")+len(e.Severity)+1:len(c.subject)-len(e.Key)-1]; e.Type != want {
			t.Errorf("%T: type %s, want %s", c.event, e.Type, want)
		}
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add("leaf.events.info.segment.refill.a.b", "2026-01-02T03:04:05.006Z", []byte(`{"node":"n"}`))
	f.Add("leaf.events.alert.x", "", []byte(`{`))
	f.Fuzz(func(t *testing.T, subject, at string, body []byte) {
		e, err := ParseEvent(subject, nats.Header{"ce-time": {at}}, body)
		if err != nil {
			return
		}
		if !json.Valid(encode(e)) {
			t.Fatalf("%+v is no JSON", e)
		}
	})
}
