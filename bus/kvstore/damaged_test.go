package kvstore

import (
	"context"
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/snowflake"
)

// damaged are records that no generator can have written, and sound are those that it can. To guess at one of the
// former could
// repeat IDs.
var damaged, sound = map[string][]string{
	"tag": {
		"", "{", "null", `{"tag":"order"}`, `{"tag":"other","max_id":"1","step":10}`,
		`{"tag":"order","max_id":"0","step":10}`, `{"tag":"order","max_id":"-5","step":10}`,
		`{"tag":"order","max_id":1,"step":10}`,
		`{"tag":"order","max_id":"9223372036854775808","step":10}`, `{"tag":"order","max_id":"1","step":0}`,
		`{"tag":"order","max_id":"5","step":1000,"order":"strict"}`,
		`{"tag":"order","max_id":"0","step":0,"order":"strict"}`,
		`{"tag":"order","max_id":"5","step":1000,"order":"trend"}`,
		`{"tag":"order","max_id":"5","step":0,"order":"Strict"}`,
		`{"tag":"order","max_id":"5","step":1,"order":"opaque-54","key_id":"0a1b"}`,
		`{"tag":"order","max_id":"5","step":1,"order":"opaque-63"}`,
		`{"tag":"order","max_id":"5","step":1,"key_id":"0a1b"}`,
		`{"tag":"order","max_id":"5","step":1,"order":"opaque-d12","key_id":"0a1b"}`,
	},
	"ledger": {
		"", "{", "null", "{}", `"5"`, `{"end":"0"}`, `{"end":"-5"}`, `{"end":"1e3"}`, `{"end":5}`,
		`{"end":"9223372036854775808"}`,
		`{"end":"5","more":1}`, `{"end":"5"} {}`, `{"end":"5"}x`, `{"end":"5","floor":"6"}`, `{"end":"5","floor":"-1"}`,
		`{"floor":"5"}`,
		`{"end":"1","order":"trend"}`, `{"end":"1","order":"x"}`, `{"end":"1","order":1}`, `{"order":"strict"}`,
	},
	"key": {
		"", "null", `{"domain":"d12","key":"AAEC"}`, `{"domain":"","key":"AAECAwQFBgcICQoLDA0ODw=="}`,
		`{"key":"AAECAwQFBgcICQoLDA0ODw=="}`, `{"domain":"53","key":"AAECAwQFBgcICQoLDA0ODw=="} 1`,
		`{"domain":"53","key":"AAECAwQFBgcICQoLDA0ODw==","more":1}`,
	},
	"worker": {
		"", "{", "null", `{"worker":4,"node":"a","incarnation":"i","reserved_until_ms":1}`,
		`{"worker":7,"node":"a","incarnation":"","reserved_until_ms":1}`,
		`{"worker":7,"node":"a","incarnation":"i","reserved_until_ms":0}`,
		`{"worker":7,"node":"a","incarnation":"i","reserved_until_ms":-1}`,
		`{"worker":"7","node":"a","incarnation":"i","reserved_until_ms":1}`,
	},
}, map[string][]string{
	"tag": {
		`{"tag":"order","max_id":"5","step":10}`, `{"tag":"order","max_id":"5","step":10,"order":""}`,
		`{"tag":"order","max_id":"5","step":0,"order":"strict"}`,
		`{"tag":"order","max_id":"5","order":"strict","deleted":true}`,
		// The last claim is evidence alone.
		`{"tag":"order","max_id":"5","step":10,"last":null}`,
		`{"tag":"order","max_id":"5","step":10,"last":{"first":1,"last":10}}`,
		`{"tag":"order","max_id":"5","step":10,"last":{"first":"1","last":"10","node":"one","time":"yesterday"}}`,
	},
	"ledger": {`{"end":"5"}`, `{"end":"5","floor":"5"}`, `{"end":"5","order":"strict"}`, `{"end":"5","last":"x"}`,
		`{"end":"5","last":{"later":"versions"}}`},
	"key":    {`{"domain":"53","key":"AAECAwQFBgcICQoLDA0ODw=="}`},
	"worker": {`{"worker":7,"node":"a","incarnation":"i","reserved_until_ms":1}`},
}

func TestDamaged(t *testing.T) {
	decoders := map[string]func(record string) error{
		"tag": func(record string) error {
			tag, err := decodeTag("order", []byte(record))
			if err == nil && (tag.MaxID != 5 || tag.Last != (allocator.Claim{})) {
				t.Errorf("%s reads as %+v", record, tag)
			}
			return err
		},
		"ledger": func(record string) error {
			e, err := decodeEntry("order", []byte(record), 5)
			if err == nil && (e.End != 5 || e.Last != (allocator.Claim{})) {
				t.Errorf("%s reads as %+v", record, e)
			}
			return err
		},
		"key": func(record string) error { _, err := decodeKey("order", []byte(record)); return err },
		"worker": func(record string) error {
			_,
				err := decodeWorker(entry{key: "7", value: []byte(record)})
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
	for key, record := range map[string]string{
		"-8":    `{"worker":-8,"node":"a","incarnation":"i","reserved_until_ms":1}`,
		"09":    `{"worker":9,"node":"a","incarnation":"i","reserved_until_ms":1}`,
		"a/b=c": `{"worker":9,"node":"a","incarnation":"i","reserved_until_ms":1}`,
	} {
		if e, err := decodeWorker(entry{key: key, value: []byte(record)}); err == nil {
			t.Errorf("worker at key %s: %+v", key, e)
		}
	}
}

// A damaged record refuses its tag or its worker, and no other one. Nothing is written over it.
func TestDamagedRefuses(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store, workers := newStore(t, s), NewWorkers(newConfig(t, s))
	createAll(t, store, "mail")
	good, err := workers.Add(t.Context(), holder(0), only(500))
	if err != nil {
		t.Fatal(err)
	}
	revisions := make(map[string]uint64)
	put := func(bucket, key, record string) {
		t.Helper()
		kv, err := store.cfg.JS.KeyValue(t.Context(), bucket)
		if err == nil {
			revisions[bucket], err = kv.PutString(t.Context(), key, record)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if e, err := kv.Get(context.Background(), key); err != nil || e.Revision() != revisions[bucket] {
				t.Errorf("%s in %s was changed: %v", record, bucket, err)
			}
		})
	}
	put(bus.BucketTags, "order", damaged["tag"][3])
	put(bus.BucketWorkers, "7", damaged["worker"][3])
	to := int64(900)
	for what, call := range map[string]func() error{
		"Reserve": func() error { _, err := store.Reserve(t.Context(), "order", 1, 1); return err },
		"Create": func() error {
			_, err := store.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 900, Step: 10})
			return err
		},
		"Update": func() error {
			_,
				err := store.Update(t.Context(), "order", allocator.Change{MaxID: &to})
			return err
		},
	} {
		if err := call(); !errors.Is(err, allocator.ErrDamaged) {
			t.Errorf("%s: %v, want %v", what, err, allocator.ErrDamaged)
		}
	}
	if g, err := store.Reserve(t.Context(), "mail", 1, 1); err != nil || g.First != 1 {
		t.Errorf("another tag: %v, %v", g.Range, err)
	}
	if e, err := workers.Add(t.Context(), holder(0), only(7)); !errors.Is(err, snowflake.ErrFull) {
		t.Errorf("a damaged record was overwritten by %+v, %v", e, err)
	}
	if got, err := workers.List(t.Context()); err != nil || len(got) != 1 || got[0] != good {
		t.Errorf("List: %+v, %v; want %+v", got, err, good)
	}
}
