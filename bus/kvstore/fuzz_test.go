package kvstore

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/internal/wire"
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

// A record that is accepted is of the worker that its key says, and is bounded:
// what is written back says the same.
func FuzzDecodeWorker(f *testing.F) {
	for _, record := range damaged["worker"] {
		if e, err := decodeWorker(Record{Key: "7", Value: []byte(record), revision: 5}); err == nil {
			f.Errorf("%s is damaged, and reads as %+v", record, e)
		}
		f.Add("7", []byte(record))
		f.Add("0", []byte(record))
	}
	for key, worker := range map[string]string{"7": "7", "-8": "-8", "09": "9", "a/b=c": "9"} {
		record := []byte(`{"worker":` + worker + `,"node":"a","incarnation":"i","reserved_until_ms":1}`)
		if e, err := decodeWorker(Record{Key: key, Value: record, revision: 5}); (err == nil) != (key == "7") {
			f.Errorf("%s at key %s reads as %+v, %v", record, key, e, err)
		}
		f.Add(key, record)
	}
	f.Fuzz(func(t *testing.T, key string, record []byte) {
		e, err := decodeWorker(Record{Key: key, Value: record, revision: 5})
		if err != nil {
			return
		}
		if e.Worker < 0 || strconv.FormatInt(e.Worker, 10) != key || e.Incarnation == "" || e.ReservedUntil < 1 ||
			e.Version != 5 {
			t.Fatalf("%s: %q reads as %+v", key, record, e)
		}
		again, err := json.Marshal(e.Record)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeWorker(Record{Key: key, Value: again, revision: 5})
		if err != nil || back != e {
			t.Fatalf("%s: %s reads as %+v, %v", key, again, back, err)
		}
	})
}

// A backup that is accepted is complete: what is written back says the same.
func FuzzParseBackup(f *testing.F) {
	b := Backup{Installation: "one", Buckets: []string{wire.BucketInstallation, wire.BucketTags}, Records: []Record{
		{Bucket: wire.BucketInstallation, Key: InstallationKey, Value: []byte(`{"id":"one"}`)},
		{Bucket: wire.BucketTags, Key: "order", Value: []byte(`{"tag":"order"}`)},
	}}
	text, err := json.Marshal(backupFile{backupFormat, b})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add([]byte("{}\n{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var file bytes.Buffer
		zipped := gzip.NewWriter(&file)
		_, err := zipped.Write(text)
		if err := errors.Join(err, zipped.Close()); err != nil {
			t.Fatal(err)
		}
		b, err := ParseBackup(file.Bytes())
		if err != nil {
			return
		}
		file.Reset()
		if err := b.Write(&file); err != nil {
			t.Fatal(err)
		}
		if back, err := ParseBackup(file.Bytes()); err != nil || !reflect.DeepEqual(back, b) {
			t.Fatalf("%q reads as %v, %v, not as %v", text, back, err, b)
		}
	})
}

// A master key that is accepted has its size: what is written back says the same. An error shows nothing of the record.
func FuzzDecodeMaster(f *testing.F) {
	for _, record := range damaged["master"] {
		if _, err := decodeMaster([]byte(record)); !errors.Is(err, allocator.ErrDamaged) {
			f.Errorf("%s is damaged: %v", record, err)
		}
		f.Add([]byte(record))
	}
	if _, err := decodeMaster([]byte(`{"format":2,"secret":"x"}`)); !errors.Is(err, allocator.ErrNewer) {
		f.Errorf("a master key of a newer version: %v", err)
	}
	const good = `{"format":1,"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}`
	if _, err := decodeMaster([]byte(good)); err != nil {
		f.Error(err)
	}
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, record []byte) {
		master, err := decodeMaster(record)
		if err != nil {
			known := errors.Is(err, allocator.ErrDamaged) || errors.Is(err, allocator.ErrNewer)
			if master != nil || !known || len(record) > 3 && strings.Contains(err.Error(), string(record)) {
				t.Fatalf("%q: %v", record, err)
			}
			return
		}
		again, err := json.Marshal(masterRecord{masterFormat, master})
		if err != nil || len(master) != opaque.MasterSize {
			t.Fatalf("%q: %v", record, err)
		}
		if back, err := decodeMaster(again); err != nil || string(back) != string(master) {
			t.Fatalf("%s reads as %x, %v", again, back, err)
		}
	})
}
