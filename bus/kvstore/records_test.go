package kvstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

func TestRecords(t *testing.T) {
	t.Parallel()
	allocatortest.RunRecords(t, func(tb testing.TB) allocatortest.RecordsBackend {
		s := natskit.Start(tb)
		cfg := newConfig(tb, s)
		first := openRecordsOf(tb, cfg)
		link := linkTo(tb, s)
		put := func(tb testing.TB, tag string, data string) {
			if _, err := cfg.JS.Publish(tb.Context(), subjectOf(wire.BucketTags)+tag, []byte(data)); err != nil {
				tb.Fatal(err)
			}
		}
		return allocatortest.RecordsBackend{
			Open:    func(tb testing.TB) allocator.Records { return openRecordsOf(tb, connect(tb, "nats://"+link.Addr())) },
			Restart: func(testing.TB) { link.Cut() },
			Save: func(tb testing.TB) func() {
				restore := snapshot(tb, s, wire.BucketTags)
				return func() { removeTags(tb, cfg); restore() }
			},
			Damage: func(tb testing.TB, tag string) { put(tb, tag, `{"format":1,"tag":"`+tag+`"}`) },
			Remove: func(tb testing.TB, tag string) { // as `nats kv del` does
				kv, err := cfg.JS.KeyValue(tb.Context(), wire.BucketTags)
				if err == nil {
					err = kv.Delete(tb.Context(), tag)
				}
				if err != nil {
					tb.Fatal(err)
				}
			},
			Newer: func(tb testing.TB, tag string) {
				put(tb, tag, fmt.Sprintf(`{"format":2,"bucket":"%d","tag":"%s","ends":["7"]}`,
					first.bucket.Load().first, tag))
			},
		}
	})
}

// A bucket that was removed is made again, with higher revisions. Nothing that was written for the old one counts
// there, and no new tag can be taken for one of those that were lost, until somebody ends the loss.
func TestRecordsLost(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	revision := swap(t, r, trend("order", 11), 0)
	old, idle := *r.bucket.Load(), openRecordsOf(t, cfg)
	w := followTags(t, r)
	sync1(t, r)
	removeTags(t, cfg)
	idle.looked.Store(&look{})
	if _, err := idle.Swap(t.Context(), trend("new", 1), 0); !errors.Is(err, allocator.ErrTagsLost) {
		t.Errorf("a creation when the tags are just lost: %v", err)
	}
	testkit.Eventually(t, "the bucket is made again", func() bool { return r.bucket.Load().first != old.first })
	if now := r.bucket.Load().first; now <= revision {
		t.Errorf("the first revision is %d, and the old bucket had %d", now, revision)
	}
	testkit.Eventually(t, "the loss is known", func() bool { return errors.Is(r.Err(), allocator.ErrTagsLost) })
	if err := openRecordsOf(t, cfg).Err(); !errors.Is(err, allocator.ErrTagsLost) {
		t.Errorf("Err of a generator that starts: %v", err)
	}
	if _, err := r.Swap(t.Context(), trend("order", 21), revision); !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("a late Swap for the old bucket: %v", err)
	}
	late, err := encodeTag(trend("late", 5), old.first)
	if err == nil {
		_, err = cfg.JS.Publish(t.Context(), subjectOf(wire.BucketTags)+"late", late,
			jetstream.WithExpectLastSequencePerSubject(0))
	}
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.Load(t.Context(), "late"); err != nil || s.Revision != 0 {
		t.Errorf("a late creation for the old bucket counts: %+v, %v", s, err)
	}
	swap(t, r, trend("late", 500), 0) // somebody knows it, which the caller has made sure of
	if err := r.EndLoss(t.Context()); err != nil || r.Err() != nil {
		t.Fatalf("EndLoss: %v, %v", err, r.Err())
	}
	swap(t, r, trend("new", 1), 0)
	sync1(t, r)
	if late, order := w.end("late"), w.end("order"); late != 500 || order != 11 {
		t.Errorf("the watch has late at %d, and order at %d", late, order)
	}
}

// The settings of a stream survive the loss of its disks. Its marker does not.
func TestRecordsEmptied(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	swap(t, r, trend("order", 11), 0)
	stream, err := cfg.JS.Stream(t.Context(), streamOf(wire.BucketTags))
	if err != nil {
		t.Fatal(err)
	}
	removeTags(t, cfg)
	if _, err := cfg.JS.CreateStream(t.Context(), stream.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	r.looked.Store(&look{})
	if _, err := r.Swap(t.Context(), trend("new", 1), 0); err == nil || !errors.Is(r.Err(), allocator.ErrTagsLost) {
		t.Errorf("a creation in an emptied bucket: %v; Err: %v", err, r.Err())
	}
	swap(t, r, trend("known", 500), 0)
}

// A bucket that is made again by a generator whose clock is behind has higher revisions, too.
func TestRecordsLostClockBehind(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	ahead := r.bucket.Load().first + uint64((30 * 24 * time.Hour).Microseconds())
	if _, err := ChangeInstallation(t.Context(), cfg, func(have *Installation) error { have.Tags = ahead; return nil }); err != nil {
		t.Fatal(err)
	}
	removeTags(t, cfg)
	b, err := open(t.Context(), cfg, wire.BucketTags)
	if err != nil || b.first <= ahead {
		t.Errorf("the first revision is %d, %v; the old bucket began at %d", b.first, err, ahead)
	}
}

// A record by hand that names a later bucket, which there is not, is a damaged one. All others go on, and an operator
// can write over it.
func TestRecordOfNoBucket(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	w := followTags(t, r)
	sync1(t, r)
	data, err := encodeTag(trend("order", 50), r.bucket.Load().first+7)
	if err == nil {
		_, err = cfg.JS.Publish(t.Context(), subjectOf(wire.BucketTags)+"order", data)
	}
	if err != nil {
		t.Fatal(err)
	}
	sync1(t, r)
	swap(t, r, trend("other", 11), 0)
	testkit.Eventually(t, "the watch goes on", func() bool { return w.end("other") == 11 })
	s, err := r.Load(t.Context(), "order")
	if !errors.Is(err, allocator.ErrDamaged) || s.Revision == 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	swap(t, r, trend("order", 60), s.Revision)
	testkit.Eventually(t, "it is sound again", func() bool { return w.end("order") == 60 })
}

// While the installation's record is lost, or of another installation, no tag is created, and those that are there go
// on.
func TestRecordsOfNoInstallation(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(Config) error{
		"bucket": func(cfg Config) error { return cfg.JS.DeleteKeyValue(t.Context(), wire.BucketInstallation) },
		"key": func(cfg Config) error {
			kv, err := cfg.JS.KeyValue(t.Context(), wire.BucketInstallation)
			if err != nil {
				return err
			}
			return kv.Delete(t.Context(), InstallationKey)
		},
		"another": func(cfg Config) error {
			_, err := cfg.JS.Publish(t.Context(), subjectOf(wire.BucketInstallation)+InstallationKey,
				[]byte(`{"id":"ANOTHER"}`))
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cfg := newConfig(t, natskit.Start(t))
			r := openRecordsOf(t, cfg)
			revision := swap(t, r, trend("order", 11), 0)
			if err := lose(cfg); err != nil {
				t.Fatal(err)
			}
			r.looked.Store(&look{})
			if _, err := r.Swap(t.Context(), trend("new", 1), 0); !errors.Is(err, allocator.ErrUnavailable) {
				t.Errorf("a creation: %v", err)
			}
			if err := r.Err(); !errors.Is(err, allocator.ErrUnavailable) || errors.Is(err, allocator.ErrTagsLost) {
				t.Errorf("Err: %v", err)
			}
			swap(t, r, trend("order", 21), revision)
			removeTags(t, cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // only a broken session takes so long
			defer cancel()
			if _, err := r.session(ctx, func(allocator.Update) {}, nil); err == nil {
				t.Error("a session without a bucket")
			}
			if _, err := find(t.Context(), cfg, wire.BucketTags); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("a bucket of tags was made without an installation: %v", err)
			}
		})
	}
}

// Somebody gives the buckets an age limit while a generator runs. That of the installation's record does not hide that
// of the tags, and alone it stops no claims.
func TestBucketsChange(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	for _, bucket := range []string{wire.BucketInstallation, wire.BucketTags} {
		stream, err := cfg.JS.Stream(t.Context(), streamOf(bucket))
		kit.Must(t, err)
		config := stream.CachedInfo().Config
		config.MaxAge = time.Hour
		_, err = cfg.JS.UpdateStream(t.Context(), config)
		kit.Must(t, err)
		lost, err := r.look(t.Context())
		if err != nil || lost == nil || !strings.Contains(lost.Error(), bucket+" has an age limit") ||
			errors.Is(lost, allocator.ErrRefused) != (bucket == wire.BucketTags) {
			t.Errorf("%s changed: %v, %v", bucket, lost, err)
		}
	}
}

// The bucket of another installation is refused.
func TestRecordsOfAnother(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	openRecordsOf(t, cfg)
	if err := NewRecords(cfg).Open(t.Context(), Installation{ID: "others"}); err != nil {
		t.Fatal(err) // its record is missing, which Err says
	}
	if err := cfg.JS.DeleteKeyValue(t.Context(), wire.BucketInstallation); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the installation's bucket is made again", func() bool {
		return CreateInstallation(t.Context(), cfg, Installation{ID: "others"}) == nil
	})
	if err := NewRecords(cfg).Open(t.Context(), Installation{ID: "others"}); !errors.Is(err, allocator.ErrRefused) {
		t.Errorf("the bucket of another installation: %v", err)
	}
}

// While no record fits, nothing says that records can be written: an empty write of the generator's own still fits.
func TestRecordsFull(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	r := openRecordsOf(t, connect(t, s.ClientURL()))
	revision := swap(t, r, trend("order", 11), 0)
	stream, err := r.cfg.JS.Stream(t.Context(), "KV_"+wire.BucketTags)
	kit.Must(t, err)
	limit := func(bytes int32) {
		config := stream.CachedInfo().Config
		config.MaxMsgSize = bytes
		_, err := r.cfg.JS.UpdateStream(t.Context(), config)
		kit.Must(t, err)
	}
	limit(100)
	if _, err := r.Swap(t.Context(), trend("order", 21), revision); errors.Is(err, allocator.ErrUncertain) || err == nil {
		t.Fatalf("a Swap that does not fit: %v", err)
	}
	if _, err := r.write(t.Context(), *r.bucket.Load(), r.beat, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Load(t.Context(), "order"); !errors.Is(err, allocator.ErrUnavailable) || r.Unwritable() == nil {
		t.Errorf("Load of a full bucket: %v; Unwritable: %v", err, r.Unwritable())
	}
	limit(-1)
	if _, err := r.Load(t.Context(), "order"); err != nil || r.Unwritable() != nil {
		t.Errorf("Load: %v; Unwritable: %v", err, r.Unwritable())
	}
}

// A write without an answer may have happened. Until one is answered again nothing is loaded, or a database would lose
// a range at each attempt.
func TestRecordsUncertain(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	link := linkTo(t, s)
	r := openRecordsOf(t, connect(t, "nats://"+link.Addr()))
	revision := swap(t, r, trend("order", 11), 0)
	var refused atomic.Bool
	refused.Store(true)
	link.OnRequest(func(data []byte) kit.Action { // writes get no answer, and reads do
		if refused.Load() && strings.Contains(string(data), "HPUB $KV.") || strings.HasPrefix(string(data),
			"PUB $KV.") {
			return kit.Drop
		}
		return kit.Forward
	})
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := r.Swap(soon(), trend("order", 21), revision); !errors.Is(err, allocator.ErrUncertain) ||
		errors.Is(err, allocator.ErrConflict) {
		t.Errorf("a Swap without an answer: %v", err)
	}
	if s, err := r.Load(soon(), "order"); !errors.Is(err, allocator.ErrUnavailable) {
		t.Errorf("Load while nothing can be written: %+v, %v", s, err)
	}
	refused.Store(false)
	link.OnRequest(nil)
	if s, err := r.Load(testkit.Context(t), "order"); err != nil || s.Revision != revision {
		t.Errorf("Load: %+v, %v", s, err)
	}
	removeTags(t, newConfig(t, s))
	var sent atomic.Int64
	link.OnRequest(func(data []byte) kit.Action {
		sent.Add(int64(strings.Count(string(data), "HPUB $KV.")))
		return kit.Forward
	})
	if _, err := r.Swap(testkit.Context(t), trend("order", 21), revision); sent.Load() != 1 || err == nil ||
		errors.Is(err, allocator.ErrUncertain) {
		t.Errorf("a Swap where no stream is: %v, sent %d times", err, sent.Load())
	}
}
