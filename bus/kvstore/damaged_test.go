package kvstore

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/snowflake"
)

// damaged are records that no generator can have written, and sound are those that it can. To guess at one of the
// former could
// repeat IDs.
var damaged, sound = map[string][]string{
	"master": {
		"", "null", `{"format":1,"key":"AAEC"}`, `{"format":1,"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg=="}`, `{"format":0,"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}`,
		`{"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}`, `{"format":1,"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="} 1`, `{"format":1,"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=","more":1}`,
	},
	"worker": {
		"", "{", "null", `{"worker":4,"node":"a","incarnation":"i","reserved_until_ms":1}`,
		`{"worker":7,"node":"a","incarnation":"","reserved_until_ms":1}`,
		`{"worker":7,"node":"a","incarnation":"i","reserved_until_ms":0}`,
		`{"worker":7,"node":"a","incarnation":"i","reserved_until_ms":-1}`,
		`{"worker":"7","node":"a","incarnation":"i","reserved_until_ms":1}`,
	},
}, map[string][]string{
	"master": {`{"format":1,"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}`},
	"worker": {`{"worker":7,"node":"a","incarnation":"i","reserved_until_ms":1}`},
}

func TestDamaged(t *testing.T) {
	decoders := map[string]func(record string) error{
		"master": func(record string) error { _, err := decodeMaster([]byte(record)); return err },
		"worker": func(record string) error {
			_, err := decodeWorker(Record{Key: "7", Value: []byte(record), revision: 5})
			return err
		},
	}
	for kind, decode := range decoders {
		for _, record := range damaged[kind] {
			if err := decode(record); err == nil || kind != "worker" && !errors.Is(err, allocator.ErrDamaged) {
				t.Errorf("%s: %q is damaged: %v", kind, record, err)
			}
		}
		for _, record := range sound[kind] {
			if err := decode(record); err != nil {
				t.Errorf("%s: %s: %v", kind, record, err)
			}
		}
	}
	if _, err := decodeMaster([]byte(`{"format":2,"secret":"x"}`)); !errors.Is(err, allocator.ErrNewer) {
		t.Errorf("a master key of a newer version: %v", err)
	}
	for key, record := range map[string]string{
		"-8":    `{"worker":-8,"node":"a","incarnation":"i","reserved_until_ms":1}`,
		"09":    `{"worker":9,"node":"a","incarnation":"i","reserved_until_ms":1}`,
		"a/b=c": `{"worker":9,"node":"a","incarnation":"i","reserved_until_ms":1}`,
	} {
		if e, err := decodeWorker(Record{Key: key, Value: []byte(record), revision: 5}); err == nil {
			t.Errorf("worker at key %s: %+v", key, e)
		}
	}
}

// A damaged record refuses its worker, and no other one. Nothing is written over it.
func TestDamagedRefuses(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	workers, kv := NewWorkers(newConfig(t, s)), workersBucket(t, s)
	good, err := workers.Add(t.Context(), holder(0), only(500))
	if err != nil {
		t.Fatal(err)
	}
	revision, err := kv.PutString(t.Context(), "7", damaged["worker"][3])
	if err != nil {
		t.Fatal(err)
	}
	if e, err := workers.Add(t.Context(), holder(0), only(7)); !errors.Is(err, snowflake.ErrFull) {
		t.Errorf("a damaged record was overwritten by %+v, %v", e, err)
	}
	if got, err := workers.List(t.Context()); err != nil || len(got) != 1 || got[0] != good {
		t.Errorf("List: %+v, %v; want %+v", got, err, good)
	}
	if e, err := kv.Get(t.Context(), "7"); err != nil || e.Revision() != revision {
		t.Errorf("the damaged record was changed: %v", err)
	}
}
