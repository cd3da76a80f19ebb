package kvstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

func quietly(string, int, int) {}

// counting is a progress that must grow by one record at a time.
func counting(tb testing.TB) Progress {
	last := make(map[string]int)
	return func(bucket string, done, total int) {
		if done != last[bucket]+1 || done > total {
			tb.Errorf("%s: %d of %d records come after %d", bucket, done, total, last[bucket])
		}
		last[bucket] = done
	}
}

func mustBackUp(tb testing.TB, cfg Config) Backup {
	tb.Helper()
	b, err := TakeBackup(tb.Context(), cfg, counting(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// of returns the record of a key; nil: the backup lacks it.
func (b Backup) of(bucket, key string) []byte {
	for _, r := range b.Records {
		if r.Bucket == bucket && r.Key == key {
			return r.Value
		}
	}
	return nil
}

// A backup has a tag that is rewritten meanwhile, one that is created, and the master key that came with it.
func TestBackupIsComplete(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	for _, name := range []string{"busy", "a", "b", "c"} {
		swap(t, r, trend(name, 1), 0)
	}
	b, err := TakeBackup(t.Context(), cfg, func(bucket string, done, _ int) {
		if bucket == wire.BucketTags && done == 1 {
			_, err := claim(t.Context(), r, "busy")
			kit.Must(t, err)
			mustCreateOpaque(t, r, opaqueTag(t, "late", "53"))
		}
	})
	kit.Must(t, err)
	for _, name := range []string{"busy", "a", "b", "c", "late"} {
		if b.of(wire.BucketTags, name) == nil {
			t.Errorf("the backup lacks %s", name)
		}
	}
	if b.of(wire.BucketKeys, masterKey) == nil {
		t.Error("the backup lacks the master key")
	}
}

// backedUp is an installation with a record of each kind, and a copy of it.
func backedUp(t *testing.T) (Config, *Records, Backup) {
	t.Helper()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	swap(t, r, trend("order", 1), 0)
	gone := trend("gone", 77)
	gone.Deleted = true
	swap(t, r, gone, 0)
	mustCreateOpaque(t, r, opaqueTag(t, "coupon", "53"))
	if _, err := NewWorkers(cfg).Add(t.Context(), holder(7), only(7)); err != nil {
		t.Fatal(err)
	}
	return cfg, r, mustBackUp(t, cfg)
}

func mustRestore(t *testing.T, cfg Config, b Backup, known map[string]int64) Restored {
	t.Helper()
	done, err := Restore(t.Context(), cfg, b, known, counting(t))
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// In an empty account a restore makes all records again, in buckets with the settings that generators use, and ends the
// loss.
func TestRestoreIntoAnEmptyAccount(t *testing.T) {
	t.Parallel()
	from, _, b := backedUp(t)
	to := newConfig(t, natskit.Start(t))
	if done := mustRestore(t, to, b, nil); done.Created != len(b.Records) ||
		done.Raised+done.Unchanged+len(done.Damaged) > 0 {
		t.Errorf("%+v of %d records", done, len(b.Records))
	}
	first := func(cfg Config) string {
		have, err := find(t.Context(), cfg, wire.BucketTags)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(have.first)
	}
	again := mustBackUp(t, to)
	if !slices.EqualFunc(again.Records, b.Records, func(x, y Record) bool { // but for the bucket that they name
		is := bytes.ReplaceAll(x.Value, []byte(first(to)), []byte(first(from)))
		return x.Bucket == y.Bucket && x.Key == y.Key && bytes.Equal(is, y.Value)
	}) {
		t.Errorf("%v\nis restored as\n%v", b.Records, again.Records)
	}
	r := NewRecords(to)
	if err := r.Open(t.Context(), Installation{ID: "ours"}); err != nil || r.Err() != nil {
		t.Errorf("Open: %v, Err: %v", err, r.Err())
	}
	for _, bucket := range b.Buckets {
		var configs []string
		for _, cfg := range []Config{from, to} {
			stream, err := cfg.JS.Stream(t.Context(), streamOf(bucket))
			if err != nil {
				t.Fatal(err)
			}
			settings := stream.CachedInfo().Config
			settings.FirstSeq = 0
			configs = append(configs, fmt.Sprintf("%+v", settings))
		}
		if configs[0] != configs[1] {
			t.Errorf("%s differs from generators' bucket:\n%s\n%s", bucket, configs[0], configs[1])
		}
	}
}

// What happened after the backup stays, however often it is restored. Only tags that somebody knows further are raised.
func TestRestoreLowersNothing(t *testing.T) {
	t.Parallel()
	cfg, r, b := backedUp(t)
	end, err := claim(t.Context(), r, "order")
	if err != nil {
		t.Fatal(err)
	}
	swap(t, r, trend("later", 1), 0)
	coupon, err := r.Load(t.Context(), "coupon")
	if err != nil {
		t.Fatal(err)
	}
	coupon.Deleted = true
	swap(t, r, coupon.Tag, coupon.Revision)
	before := mustBackUp(t, cfg)
	for range 2 {
		if done := mustRestore(t, cfg, b, map[string]int64{"order": end}); done.Created+done.Raised > 0 {
			t.Errorf("%+v", done)
		}
	}
	after := mustBackUp(t, cfg)
	for _, r := range before.Records {
		if is := after.of(r.Bucket, r.Key); !bytes.Equal(is, r.Value) {
			t.Errorf("%s %s was %s and is %s", r.Bucket, r.Key, r.Value, is)
		}
	}
	known := map[string]int64{"order": 5000, "later": 6000, "nowhere": 8000}
	if done := mustRestore(t, cfg, b, known); done.Raised != 2 || len(done.Behind) != 2 {
		t.Errorf("%+v, and two tags are known further", done)
	}
	for tag, end := range map[string]int64{"order": 5000, "later": 6000} {
		if got, err := r.Load(t.Context(), tag); err != nil || got.MaxID != end || got.Floor != end {
			t.Errorf("%s is at %d, above %d (%v), not %d", tag, got.MaxID, got.Floor, err, end)
		}
	}
	// All is lost, and a write for the old bucket comes late.
	removeTags(t, cfg)
	late, err := open(t.Context(), cfg, wire.BucketTags)
	if err != nil {
		t.Fatal(err)
	}
	data, err := encodeTag(trend("order", 9000), late.first-1)
	if err == nil {
		_, err = cfg.JS.Publish(t.Context(), subjectOf(wire.BucketTags)+"order", data)
	}
	if err != nil {
		t.Fatal(err)
	}
	mustRestore(t, cfg, b, nil)
	again := openRecordsOf(t, cfg)
	if got, err := again.Load(t.Context(), "order"); err != nil || got.MaxID != 1 || again.Err() != nil {
		t.Errorf("after a loss: %+v, %v; Err: %v", got, err, again.Err())
	}
}

// An account that contradicts the backup stays as it is.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	_, _, b := backedUp(t)
	other, _, theirs := backedUp(t)
	refused := func(why string, b Backup) {
		t.Helper()
		_, err := Restore(t.Context(), other, b, map[string]int64{"order": 5000}, quietly)
		if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), why) ||
			!strings.Contains(err.Error(), "nothing was restored") {
			t.Errorf("%v", err)
		}
	}
	refused("the tag coupon has another order or key", b)
	keys := b
	keys.Records = slices.DeleteFunc(slices.Clone(b.Records),
		func(r Record) bool { return r.Bucket != wire.BucketKeys })
	refused("the master key of opaque tags", keys)
	_, err := ChangeInstallation(t.Context(), other, func(have *Installation) error { have.ID = "two"; return nil })
	if err != nil {
		t.Fatal(err)
	}
	refused("installation two, and the backup is of installation ours", b)
	for _, r := range theirs.Records {
		if is := mustBackUp(t, other).of(r.Bucket, r.Key); r.Bucket != wire.BucketInstallation &&
			!bytes.Equal(is, r.Value) {
			t.Errorf("%s %s was %s and is %s", r.Bucket, r.Key, r.Value, is)
		}
	}
}

// Of two records the restore keeps what forbids more.
func TestMerge(t *testing.T) {
	const head = `{"format":1,"bucket":"77","tag":"t",`
	const was = `"end":"50","step":10,"updated":"2026-01-02T00:00:00Z"`
	for _, c := range []struct{ bucket, backup, has, want string }{
		{wire.BucketTags, was, `"end":"40","step":5`, `"step":5`},
		// Others may have claimed 40 to 49 again.
		{wire.BucketTags, was, `"end":"40","step":5`, `"floor":"50"`},
		{wire.BucketTags, was + `,"limit":"9000","rules_version":"3"`, `"end":"60","step":5,"rules_version":"2"`,
			`"limit":"9000"`},
		{wire.BucketTags, was + `,"limit":"9000","rules_version":"3"`, `"end":"60","step":5,"rules_version":"4"`, ""},
		{wire.BucketTags, was, `"end":"50","step":5,"deleted":true`, ""},
		{wire.BucketTags, was + `,"deleted":true`, `"end":"40","step":5,"updated":"2026-01-01T00:00:00Z"`,
			`"deleted":true`},
		// The name was created again.
		{wire.BucketTags, was + `,"deleted":true`, `"end":"50","step":5,"updated":"2026-01-03T00:00:00Z"`, ""},
		{wire.BucketTags, was, `damaged`, "error: the tag's record is damaged"},
		{wire.BucketTags, was, `"end":"40","step":0,"order":"strict"`, "error: refused: the tag t has another order"},
		{wire.BucketWorkers, `{"worker":7,"incarnation":"old","reserved_until_ms":9}`,
			`{"worker":7,"incarnation":"new","reserved_until_ms":8}`,
			`"incarnation":"new","reserved_until_ms":9`},
		{wire.BucketWorkers, `{"worker":7,"incarnation":"old","reserved_until_ms":9}`,
			`{"worker":7,"incarnation":"new","reserved_until_ms":10}`, ""},
		{wire.BucketWorkers, `{"worker":7,"incarnation":"i","reserved_until_ms":9}`, damaged["worker"][3],
			"error: the tag's record is damaged"},
		{wire.BucketWorkers, damaged["worker"][3], `{"worker":7,"incarnation":"i","reserved_until_ms":9}`, ""},
	} {
		key := "7"
		if c.bucket == wire.BucketTags {
			key, c.backup, c.has = "t", head+c.backup+"}", head+c.has+"}"
		}
		next, err := bucket{name: c.bucket, first: 77}.merge(Record{Bucket: c.bucket, Key: key, Value: []byte(c.backup)},
			Record{Value: []byte(c.has)}, nil)
		got, want := string(next), c.want
		if want == "" {
			want = c.has
		}
		if err != nil {
			got = "error: " + err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s over %s gives %s, not %s", c.backup, c.has, got, want)
		}
	}
}

// A file of which the end is missing, or a byte is another one, is refused, unless that byte says nothing.
func TestCutBackup(t *testing.T) {
	t.Parallel()
	_, _, b := backedUp(t)
	var file bytes.Buffer
	if err := b.Write(&file); err != nil {
		t.Fatal(err)
	}
	same := func(back Backup) bool {
		return back.Installation == b.Installation && slices.EqualFunc(back.Records, b.Records, func(x, y Record) bool {
			return x.Bucket == y.Bucket && x.Key == y.Key && bytes.Equal(x.Value, y.Value)
		})
	}
	if back, err := ParseBackup(file.Bytes()); err != nil || !same(back) {
		t.Errorf("%v was written, and %v read (%v)", b, back, err)
	}
	for n := range file.Len() {
		if _, err := ParseBackup(file.Bytes()[:n]); !errors.Is(err, errCutBackup) && (n > 1 || err == nil) {
			t.Fatalf("the first %d of %d bytes: %v", n, file.Len(), err)
		}
		changed := bytes.Clone(file.Bytes())
		changed[n] ^= 1
		if back, err := ParseBackup(changed); err == nil && !same(back) {
			t.Fatalf("byte %d is another one", n)
		}
	}
	if _, err := ParseBackup([]byte("tags:\n- tag: order\n")); !errors.Is(err, errNoBackup) {
		t.Errorf("a file of tags: %v", err)
	}
}
