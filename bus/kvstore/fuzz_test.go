package kvstore

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// entry is a record as the bucket would return it.
type entry struct {
	jetstream.KeyValueEntry
	value []byte
}

func (e entry) Key() string   { return "order" }
func (e entry) Value() []byte { return e.value }

// A record that is accepted says where the tag is: what is written back says
// the same.
func FuzzDecodeRecord(f *testing.F) {
	for _, record := range []string{
		`{"tag":"order","max_id":"1","step":1000,"description":"","updated":"2026-01-02T03:04:05Z"}`,
		`{"tag":"order","max_id":"9223372036854775807","step":1,"floor":"5","deleted":true}`,
		`{"tag":"order","max_id":1,"step":1}`, `{"tag":"order"}`, `null`, ``,
	} {
		f.Add([]byte(record))
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		tag, err := decode(entry{value: record})
		if err != nil {
			return
		}
		if tag.MaxID < 1 || tag.Step < 1 || tag.Name != "order" {
			t.Fatalf("%q reads as %+v", record, tag)
		}
		again, err := json.Marshal(tag)
		if err != nil {
			return // a year that JSON cannot carry
		}
		back, err := decode(entry{value: again})
		if err != nil || back.MaxID != tag.MaxID || back.Floor != tag.Floor || back.Step != tag.Step || back.Deleted != tag.Deleted {
			t.Fatalf("%s reads as %+v, %v", again, back, err)
		}
	})
}
