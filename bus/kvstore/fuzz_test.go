package kvstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
)

// entry is a record as the bucket would return it.
type entry struct {
	jetstream.KeyValueEntry
	key   string
	value []byte
}

func (e entry) Key() string      { return e.key }
func (e entry) Value() []byte    { return e.value }
func (e entry) Revision() uint64 { return 5 }

// A record that is accepted says where the tag is: what is written back says
// the same.
func FuzzDecodeRecord(f *testing.F) {
	for _, record := range append(damaged["tag"], sound["tag"]...) {
		f.Add([]byte(record))
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		tag, err := decode(entry{key: "order", value: record})
		if err != nil {
			return
		}
		strict := tag.Order == allocator.Strict && tag.Step == 0
		domain := tag.Order.Domain()
		if tag.MaxID < 1 || !strict && (tag.Step < 1 || tag.Order != allocator.Trend && domain == "") || tag.Name != "order" {
			t.Fatalf("%q reads as %+v", record, tag)
		}
		if (domain != "") != (tag.KeyID != "") || domain != "" && tag.Left(domain.Last()) > 1 {
			t.Fatalf("%q reads as %+v", record, tag)
		}
		again, err := json.Marshal(tag)
		if err != nil {
			return // a year that JSON cannot carry
		}
		back, err := decode(entry{key: "order", value: again})
		if err != nil || back.MaxID != tag.MaxID || back.Floor != tag.Floor || back.Step != tag.Step || back.Order != tag.Order || back.KeyID != tag.KeyID || back.Deleted != tag.Deleted ||
			back.Last.First != tag.Last.First || back.Last.Last != tag.Last.Last || back.Last.Node != tag.Last.Node || !back.Last.Time.Equal(tag.Last.Time) {
			t.Fatalf("%s reads as %+v, %v", again, back, err)
		}
	})
}

// A record that is accepted is of the worker that its key says, and is bounded:
// what is written back says the same.
func FuzzDecodeWorker(f *testing.F) {
	for _, record := range append(damaged["worker"], sound["worker"]...) {
		f.Add("7", []byte(record))
		f.Add("0", []byte(record))
	}
	f.Fuzz(func(t *testing.T, key string, record []byte) {
		e, err := decodeWorker(entry{key: key, value: record})
		if err != nil {
			return
		}
		if e.Worker < 0 || strconv.FormatInt(e.Worker, 10) != key || e.Incarnation == "" || e.ReservedUntil < 1 || e.Version != 5 {
			t.Fatalf("%s: %q reads as %+v", key, record, e)
		}
		again, err := json.Marshal(e.Record)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeWorker(entry{key: key, value: again})
		if err != nil || back != e {
			t.Fatalf("%s: %s reads as %+v, %v", key, again, back, err)
		}
	})
}

// A record of the ledger that is accepted has an end from which IDs can be claimed: what is written back
// says the same.
func FuzzDecodeEntry(f *testing.F) {
	for _, record := range append(damaged["ledger"], sound["ledger"]...) {
		f.Add([]byte(record))
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		e, err := decodeEntry("order", record, 5)
		if err != nil {
			if e != (allocator.Entry{}) || !errors.Is(err, allocator.ErrDamaged) {
				t.Fatalf("%q reads as %+v, %v", record, e, err)
			}
			return
		}
		if e.End < 1 || e.Floor < 0 || e.Floor > e.End || e.Revision != 5 || !e.Order.Known() {
			t.Fatalf("%q reads as %+v", record, e)
		}
		again, err := json.Marshal(claimRecord{e.End, e.Floor, e.Order, e.Last, e.Rules})
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeEntry("order", again, 5)
		back.Last.Time, e.Last.Time = back.Last.Time.UTC(), e.Last.Time.UTC()
		if err != nil || back != e {
			t.Fatalf("%s reads as %+v, %v", again, back, err)
		}
	})
}

// A backup that is accepted is complete: what is written back says the same.
func FuzzParseBackup(f *testing.F) {
	b := Backup{Installation: "one", Buckets: []string{bus.BucketInstallation, bus.BucketTags}, Records: []BackupRecord{
		{Bucket: bus.BucketInstallation, Key: InstallationKey, Value: []byte(`{"id":"one"}`)},
		{Bucket: bus.BucketTags, Key: "order", Value: []byte(sound["tag"][0])},
	}}
	var file bytes.Buffer
	if err := b.Write(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add(file.Bytes()[:file.Len()/2])
	f.Add([]byte("{}\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := ParseBackup(data)
		if body, _ := cutLastLine(data); err != nil { // with the right last line
			sum := sha256.Sum256(body)
			end, _ := json.Marshal(backupEnd{bytes.Count(body, []byte("\n")) - 1, hex.EncodeToString(sum[:])})
			b, err = ParseBackup(append(bytes.Clone(body), end...))
		}
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := b.Write(&again); err != nil {
			t.Fatal(err)
		}
		if back, err := ParseBackup(again.Bytes()); err != nil || !reflect.DeepEqual(back, b) {
			t.Fatalf("%q reads as %v, %v, not as %v", again.Bytes(), back, err, b)
		}
	})
}

// A key that is accepted has a domain and the size of a key: what is written back says the same. An error shows nothing of the record.
func FuzzDecodeKey(f *testing.F) {
	for _, record := range append(damaged["key"], sound["key"]...) {
		f.Add([]byte(record))
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		r, err := decodeKey("coupon", record)
		if err != nil {
			lost := "the tag's record is damaged: the key of coupon (bucket LEAF_KEYS) cannot be read: restore the bucket from a backup"
			if r.Key != nil || err.Error() != lost || !errors.Is(err, allocator.ErrDamaged) {
				t.Fatalf("%q: %v", record, err)
			}
			return
		}
		if _, err := opaque.New(r.Domain, r.Key); err != nil || len(r.Key) != opaque.KeySize {
			t.Fatalf("%q: %v", record, err)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeKey("coupon", again); err != nil || back.Domain != r.Domain || string(back.Key) != string(r.Key) {
			t.Fatalf("%s reads as %+v, %v", again, back, err)
		}
	})
}
