package events

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/wire"
	"github.com/nats-io/nats.go"
)

func FuzzParse(f *testing.F) {
	f.Add("leaf.events.info.segment.refill.a.b", "2026-01-02T03:04:05.006Z", []byte(`{"node":"n"}`))
	f.Add("leaf.events.alert.x", "", []byte(`{`))
	f.Fuzz(func(t *testing.T, subject, at string, body []byte) {
		e, err := Parse(subject, nats.Header{"ce-time": {at}}, body)
		if err != nil {
			return
		}
		if !json.Valid(wire.Encode(e)) {
			t.Fatalf("%+v is no JSON", e)
		}
	})
}

// A newer generator may send more fields, and events that this version does not know. A known event
// with a wrong body is an error.
func TestBodiesOfOthers(t *testing.T) {
	for _, c := range []struct {
		what, data string
		body       any
		bad        bool
	}{
		{"segment.starved", `{"node":"n","tag":"a","waiting":3,"new":{"x":1}}`, Starved{"n", "a", 3}, false},
		{"segment.starved", `{"node":"n"}`, Starved{Node: "n"}, false},
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
		e, err := Parse("leaf.events.alert."+c.what+".a", nats.Header{wire.HeaderTime: {"2026-01-02T03:04:05Z"}}, []byte(c.data))
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
