package kvstore

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/snowflake"
)

// damaged are records that no generator can have written. To guess at one of them could repeat IDs.
var damaged = map[string][]string{
	"master": {
		"", "null", `{"format":1,"key":"AAEC"}`,
		`{"format":1,"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg=="}`,
		`{"format":0,"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}`,
		`{"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}`,
		`{"format":1,"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="} 1`,
		`{"format":1,"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=","more":1}`,
	},
	"worker": {
		"", "{", "null", `{"worker":4,"node":"a","incarnation":"i","reserved_until_ms":1}`,
		`{"worker":7,"node":"a","incarnation":"","reserved_until_ms":1}`,
		`{"worker":7,"node":"a","incarnation":"i","reserved_until_ms":0}`,
		`{"worker":7,"node":"a","incarnation":"i","reserved_until_ms":-1}`,
		`{"worker":"7","node":"a","incarnation":"i","reserved_until_ms":1}`,
	},
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

// A restore changes no damaged record of a worker, and takes nothing from one.
func TestDamagedMergesNothing(t *testing.T) {
	good := []byte(`{"worker":7,"node":"a","incarnation":"i","reserved_until_ms":5}`)
	for _, record := range damaged["worker"] {
		if made, err := mergeWorker(Record{Key: "7", Value: good}, []byte(record)); !errors.Is(err, allocator.ErrDamaged) {
			t.Errorf("%q became %q, %v", record, made, err)
		}
		if made, err := mergeWorker(Record{Key: "7", Value: []byte(record)}, good); string(made) != string(good) || err != nil {
			t.Errorf("%q made %q, %v of a good record", record, made, err)
		}
	}
}
