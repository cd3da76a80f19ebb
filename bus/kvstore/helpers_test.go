package kvstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

func newConfig(tb testing.TB, s *embedded.Server) Config {
	nc := natskit.Connect(tb, s)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatalf("JetStream: %v", err)
	}
	return Config{JS: js, Log: testkit.Quiet}
}

// saveBucket keeps a copy of a bucket; the returned function makes the bucket again
// from it.
func saveBucket(tb testing.TB, cfg Config, bucket string) (restore func()) {
	ctx := context.Background()
	kv, err := cfg.JS.KeyValue(ctx, bucket)
	if err != nil {
		tb.Fatalf("saving: %v", err)
	}
	keys, err := kv.Keys(ctx)
	if err != nil {
		tb.Fatalf("saving: %v", err)
	}
	saved := make(map[string][]byte)
	for _, key := range keys {
		entry, err := kv.Get(ctx, key)
		if err != nil {
			tb.Fatalf("saving: %v", err)
		}
		saved[key] = entry.Value()
	}
	return func() {
		if err := cfg.JS.DeleteKeyValue(ctx, bucket); err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
			tb.Fatalf("restoring: %v", err)
		}
		b, err := open(ctx, cfg, bucket)
		for code(err) == codeNotCreated { // the server still removes the folder of the one before
			b, err = open(ctx, cfg, bucket)
		}
		if err != nil {
			tb.Fatalf("restoring: %v", err)
		}
		for key, value := range saved {
			if _, err := b.put(ctx, key, value, 0); err != nil {
				tb.Fatalf("restoring: %v", err)
			}
		}
	}
}

// openRecordsOf opens the records of the installation "ours", which it makes if there is none.
func openRecordsOf(tb testing.TB, cfg Config) *Records {
	tb.Helper()
	r := NewRecords(cfg)
	err := CreateInstallation(tb.Context(), cfg, Installation{ID: "ours"})
	if err == nil {
		err = r.Open(tb.Context(), Installation{ID: "ours"})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// following is what a watch has brought.
type following struct {
	mu       sync.Mutex
	tags     map[string]allocator.Update
	sessions map[string]int // how often a tag came as one that was there
}

func followTags(tb testing.TB, r *Records) *following {
	w := &following{tags: make(map[string]allocator.Update), sessions: make(map[string]int)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Watch(ctx, func(u allocator.Update) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tags[u.Name] = u
			if u.First {
				w.sessions[u.Name]++
			}
		})
	}()
	tb.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *following) end(tag string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tags[tag].MaxID
}

func (w *following) firsts(tag string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions[tag]
}

func trend(name string, end int64) allocator.Tag {
	return allocator.Tag{Name: name, MaxID: end, Step: 10, Format: 1}
}

// swap writes a record, and returns its revision.
func swap(tb testing.TB, r *Records, t allocator.Tag, revision uint64) uint64 {
	tb.Helper()
	made, err := r.Swap(testkit.Context(tb), t, revision)
	if err != nil {
		tb.Fatal(err)
	}
	return made
}

func sync1(tb testing.TB, r *Records) {
	tb.Helper()
	if err := r.Sync(testkit.Context(tb)); err != nil {
		tb.Fatal(err)
	}
}

// linkTo is a link to a server that ends with the test.
func linkTo(tb testing.TB, s *embedded.Server) *kit.Link {
	tb.Helper()
	link, err := kit.StartLink(strings.TrimPrefix(s.ClientURL(), "nats://"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(link.Close)
	return link
}

// removeTags removes the bucket of the tags, as an operator can.
func removeTags(tb testing.TB, cfg Config) {
	tb.Helper()
	if err := cfg.JS.DeleteStream(tb.Context(), streamOf(wire.BucketTags)); err != nil {
		tb.Fatal(err)
	}
}

// claim moves the end of a tag by ten, and makes its record if there is none.
func claim(ctx context.Context, r *Records, tag string) (end int64, err error) {
	s, err := r.Load(ctx, tag)
	if err != nil {
		return 0, err
	}
	if s.Revision == 0 {
		s.Tag = trend(tag, 1)
	}
	s.MaxID += 10
	_, err = r.Swap(ctx, s.Tag, s.Revision)
	return s.MaxID, err
}

// opaqueTag is a new tag, as an operator's request makes it.
func opaqueTag(tb testing.TB, name string, d opaque.Domain) allocator.Tag {
	tb.Helper()
	order := allocator.OpaqueOrder(d)
	rules, err := allocator.NewRules(idspace.RulesChange{}, order)
	if err != nil {
		tb.Fatal(err)
	}
	return allocator.Tag{Name: name, MaxID: 1, Step: 10, Order: order, Rules: rules}
}

// createOpaque makes an opaque tag as the allocator does: first its key, then its record.
func createOpaque(ctx context.Context, r *Records, t allocator.Tag) (allocator.Tag, error) {
	s, err := r.Load(ctx, t.Name)
	if err == nil {
		t.KeyID, err = NewKeys(r.cfg).Make(ctx, t, first)
	}
	if err == nil {
		_, err = r.Swap(ctx, t, s.Revision)
	}
	return t, err
}

func mustCreateOpaque(tb testing.TB, r *Records, t allocator.Tag) allocator.Tag {
	tb.Helper()
	made, err := createOpaque(testkit.Context(tb), r, t)
	if err != nil {
		tb.Fatal(err)
	}
	return made
}
