package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

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

func TestRecords(t *testing.T) {
	t.Parallel()
	allocatortest.RunRecords(t, func(tb testing.TB) allocatortest.RecordsBackend {
		s := natskit.Start(tb)
		cfg := newConfig(tb, s)
		first := openRecordsOf(tb, cfg)
		put := func(tb testing.TB, tag string, data string) {
			if _, err := cfg.JS.Publish(tb.Context(), subjectOf(bus.BucketTags)+tag, []byte(data)); err != nil {
				tb.Fatal(err)
			}
		}
		return allocatortest.RecordsBackend{
			Open:   func(tb testing.TB) allocator.Records { return openRecordsOf(tb, newConfig(tb, s)) },
			Damage: func(tb testing.TB, tag string) { put(tb, tag, `{"format":1,"tag":"`+tag+`"}`) },
			Remove: func(tb testing.TB, tag string) { // as `nats kv del` does
				kv, err := cfg.JS.KeyValue(tb.Context(), bus.BucketTags)
				if err == nil {
					err = kv.Delete(tb.Context(), tag)
				}
				if err != nil {
					tb.Fatal(err)
				}
			},
			Newer: func(tb testing.TB, tag string) {
				put(tb, tag, fmt.Sprintf(`{"format":2,"bucket":"%d","tag":"%s","ends":["7"]}`, first.bucket.Load().first, tag))
			},
		}
	})
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
	return allocator.Tag{Name: name, MaxID: end, Step: 10}
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

// removeTags removes the bucket of the tags, as an operator can.
func removeTags(tb testing.TB, cfg Config) {
	tb.Helper()
	if err := cfg.JS.DeleteStream(tb.Context(), streamOf(bus.BucketTags)); err != nil {
		tb.Fatal(err)
	}
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
	old := *r.bucket.Load()
	w := followTags(t, r)
	sync1(t, r)
	removeTags(t, cfg)
	r.looked.Store(0)
	if _, err := r.Swap(t.Context(), trend("new", 1), 0); !errors.Is(err, allocator.ErrTagsLost) {
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
		_, err = cfg.JS.Publish(t.Context(), subjectOf(bus.BucketTags)+"late", late, jetstream.WithExpectLastSequencePerSubject(0))
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
	stream, err := cfg.JS.Stream(t.Context(), streamOf(bus.BucketTags))
	if err != nil {
		t.Fatal(err)
	}
	removeTags(t, cfg)
	if _, err := cfg.JS.CreateStream(t.Context(), stream.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	r.looked.Store(0)
	if _, err := r.Swap(t.Context(), trend("new", 1), 0); err == nil || !errors.Is(r.Err(), allocator.ErrTagsLost) {
		t.Errorf("a creation in an emptied bucket: %v; Err: %v", err, r.Err())
	}
	swap(t, r, trend("known", 500), 0)
}

// While the installation's record is lost, or of another installation, no tag is created, and those that are there go
// on.
func TestRecordsOfNoInstallation(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(Config) error{
		"bucket": func(cfg Config) error { return cfg.JS.DeleteKeyValue(t.Context(), bus.BucketInstallation) },
		"key": func(cfg Config) error {
			kv, err := cfg.JS.KeyValue(t.Context(), bus.BucketInstallation)
			if err != nil {
				return err
			}
			return kv.Delete(t.Context(), InstallationKey)
		},
		"another": func(cfg Config) error {
			_, err := cfg.JS.Publish(t.Context(), subjectOf(bus.BucketInstallation)+InstallationKey, []byte(`{"id":"ANOTHER"}`))
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
			r.looked.Store(0)
			if _, err := r.Swap(t.Context(), trend("new", 1), 0); !errors.Is(err, allocator.ErrUnavailable) {
				t.Errorf("a creation: %v", err)
			}
			if err := r.Err(); !errors.Is(err, allocator.ErrUnavailable) || errors.Is(err, allocator.ErrTagsLost) {
				t.Errorf("Err: %v", err)
			}
			swap(t, r, trend("order", 21), revision)
		})
	}
}

// A bucket that generators would not make so is refused.
func TestRecordsRefused(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	if err := CreateInstallation(t.Context(), cfg, Installation{ID: "ours"}); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*jetstream.StreamConfig){
		"direct":      func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"age":         func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"roll-up":     func(c *jetstream.StreamConfig) { c.DenyPurge, c.AllowRollup = false, true },
		"history":     func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 },
		"discard old": func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"memory":      func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"first":       func(c *jetstream.StreamConfig) { c.FirstSeq = 0 },
		"version":     func(c *jetstream.StreamConfig) { c.Description = "Leafbus: the tags and their max_id" },
	} {
		c := tagsStream
		c.FirstSeq = 1000
		if change(&c); what != "" {
			if _, err := cfg.JS.CreateStream(t.Context(), c); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		err := NewRecords(cfg).Open(t.Context(), Installation{ID: "ours"})
		if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), bus.BucketTags) {
			t.Errorf("%s: %v", what, err)
		}
		removeTags(t, cfg)
	}
	openRecordsOf(t, cfg)
	if err := NewRecords(cfg).Open(t.Context(), Installation{ID: "others"}); err != nil {
		t.Fatal(err) // its record is missing, which Err says
	}
	if err := cfg.JS.DeleteKeyValue(t.Context(), bus.BucketInstallation); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the installation's bucket is made again", func() bool {
		return CreateInstallation(t.Context(), cfg, Installation{ID: "others"}) == nil
	})
	if err := NewRecords(cfg).Open(t.Context(), Installation{ID: "others"}); !errors.Is(err, allocator.ErrRefused) {
		t.Errorf("the bucket of another installation: %v", err)
	}
}

// snapshot copies the bucket with its revisions, as `nats stream backup` does. The function that it returns puts the
// copy in the place of the bucket.
func snapshot(tb testing.TB, s *embedded.Server) (restore func()) {
	tb.Helper()
	nc := natskit.Connect(tb, s)
	name := streamOf(bus.BucketTags)
	inbox := nc.NewInbox()
	chunks, err := nc.SubscribeSync(inbox)
	if err != nil {
		tb.Fatal(err)
	}
	ask := func(subject string, request, answer any) {
		data, err := json.Marshal(request)
		var m *nats.Msg
		if err == nil {
			m, err = nc.Request(subject, data, testkit.Patience)
		}
		if err == nil {
			err = json.Unmarshal(m.Data, answer)
		}
		if err != nil {
			tb.Fatalf("%s: %v", subject, err)
		}
	}
	var head struct {
		Config, State json.RawMessage
		Error         any
	}
	ask("$JS.API.STREAM.SNAPSHOT."+name, map[string]any{"deliver_subject": inbox, "no_consumers": true}, &head)
	if head.Error != nil {
		tb.Fatal(head.Error)
	}
	var copied [][]byte
	for {
		m, err := chunks.NextMsg(testkit.Patience)
		if err != nil {
			tb.Fatal(err)
		}
		if len(m.Data) == 0 {
			break
		}
		copied = append(copied, m.Data)
		_ = m.Respond(nil)
	}
	return func() {
		var into struct {
			DeliverSubject string `json:"deliver_subject"`
			Error          any
		}
		ask("$JS.API.STREAM.RESTORE."+name, map[string]any{"config": head.Config, "state": head.State}, &into)
		if into.Error != nil {
			tb.Fatal(into.Error)
		}
		for _, chunk := range append(slices.Clone(copied), nil) {
			if _, err := nc.Request(into.DeliverSubject, chunk, testkit.Patience); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// After a restore a watch begins again with every record, also where the bucket has grown past the position of the
// watch before anybody noticed.
func TestRecordsRestored(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	r := openRecordsOf(t, cfg)
	revision := swap(t, r, trend("order", 11), 0)
	restore := snapshot(t, s)
	swap(t, r, trend("order", 21), revision)
	w := followTags(t, r)
	sync1(t, r)
	if end := w.end("order"); end != 21 {
		t.Fatalf("the watch has %d", end)
	}
	removeTags(t, cfg)
	restore()
	late := trend("order", 16)
	swap(t, openRecordsOf(t, cfg), late, revision)
	for i := range uint64(50) { // the bucket grows past where the watch was
		swap(t, r, trend(fmt.Sprint("other", i), 1), 0)
	}
	testkit.Eventually(t, "the watch has what was written below", func() bool { return w.end("order") == 16 })
	if err := r.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
}

// A watch begins again after its connection was cut, and when its consumer has gone silent.
func TestRecordsCut(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	link, err := kit.StartLink(strings.TrimPrefix(s.ClientURL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	far, near := openRecordsOf(t, connect(t, "nats://"+link.Addr())), openRecordsOf(t, newConfig(t, s))
	revision := swap(t, near, trend("order", 11), 0)
	w := followTags(t, far)
	sync1(t, far)
	begun := w.firsts("order")
	link.Cut()
	testkit.Eventually(t, "a cut connection begins a session", func() bool { return w.firsts("order") > begun })
	sync1(t, far)
	begun = w.firsts("order")
	link.HangAnswers(true)
	swap(t, near, trend("order", 21), revision)
	testkit.Eventually(t, "the silence ends the session", func() bool {
		far.mu.Lock()
		defer far.mu.Unlock()
		return far.begun > far.synced
	})
	link.HangAnswers(false)
	testkit.Eventually(t, "a session after the silence", func() bool { return w.firsts("order") > begun && w.end("order") == 21 })
}

// A write without an answer may have happened. Until one is answered again nothing is loaded, or a database would lose
// a range at each attempt.
func TestRecordsUncertain(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	link, err := kit.StartLink(strings.TrimPrefix(s.ClientURL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	r := openRecordsOf(t, connect(t, "nats://"+link.Addr()))
	revision := swap(t, r, trend("order", 11), 0)
	var refused atomic.Bool
	refused.Store(true)
	link.OnRequest(func(data []byte) kit.Action { // writes get no answer, and reads do
		if refused.Load() && strings.Contains(string(data), "HPUB $KV.") || strings.HasPrefix(string(data), "PUB $KV.") {
			return kit.Drop
		}
		return kit.Forward
	})
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := r.Swap(soon(), trend("order", 21), revision); !errors.Is(err, allocator.ErrUncertain) || errors.Is(err, allocator.ErrConflict) {
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
	if _, err := r.Swap(testkit.Context(t), trend("order", 21), revision); err == nil || errors.Is(err, allocator.ErrUncertain) {
		t.Errorf("a Swap where no stream is: %v", err)
	}
}

// A session accepts only the next message of its own consumer, and a heartbeat that fits.
func TestSessionGap(t *testing.T) {
	t.Parallel()
	message := func(consumer string, number int) *nats.Msg {
		return &nats.Msg{Sub: &nats.Subscription{}, Subject: subjectOf(bus.BucketTags) + "order", Data: []byte("x"),
			Reply: fmt.Sprintf("$JS.ACK.KV_LEAF_TAGS.%s.1.%d.%d.1700000000000000000.0", consumer, 70+number, number)}
	}
	beat := func(last string) *nats.Msg {
		return &nats.Msg{Header: nats.Header{"Status": {"100"}, "Nats-Last-Consumer": {last}}}
	}
	for what, c := range map[string]struct {
		messages []*nats.Msg
		ok       bool
	}{
		"in order":         {[]*nats.Msg{message("mine", 1), message("mine", 2), beat("2"), message("mine", 3)}, true},
		"a gap":            {[]*nats.Msg{message("mine", 1), message("mine", 3)}, false},
		"begun again":      {[]*nats.Msg{message("mine", 1), message("mine", 2), message("mine", 1)}, false},
		"another consumer": {[]*nats.Msg{message("mine", 1), message("other", 2)}, false},
		"the last is lost": {[]*nats.Msg{message("mine", 1), beat("2")}, false},
	} {
		s := &session{consumer: "mine", f: func(allocator.Update) {}}
		var err error
		for _, m := range c.messages {
			err = errors.Join(err, s.take(m))
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A consumer whose flow control is not answered stops after some thousand records.
func TestRecordsMany(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	const many = 8000
	for i := range many {
		data, err := encodeTag(trend(fmt.Sprint("tag", i), 1), r.bucket.Load().first)
		if err == nil {
			_, err = cfg.JS.PublishAsync(subjectOf(bus.BucketTags)+fmt.Sprint("tag", i), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	<-cfg.JS.PublishAsyncComplete()
	w := followTags(t, r)
	sync1(t, r)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tags) != many {
		t.Errorf("%d of %d records came", len(w.tags), many)
	}
}

// In a cluster revisions begin as asked, and what was written before a Sync has come when it returns, also while others
// write.
func TestRecordsInACluster(t *testing.T) {
	t.Parallel()
	cfg := connect(t, startCluster(t, 3)[0].ClientURL())
	ctx := testkit.Context(t)
	insist(ctx, t, 10*time.Second, func(ctx context.Context) error {
		return CreateInstallation(ctx, cfg, Installation{ID: "ours"})
	})
	r := NewRecords(cfg)
	insist(ctx, t, 10*time.Second, func(ctx context.Context) error { return r.Open(ctx, Installation{ID: "ours"}) })
	b := r.bucket.Load()
	if info := b.leader.CachedInfo(); info.Config.Replicas != 3 || b.first < uint64(time.Now().Add(-time.Hour).UnixMicro()) {
		t.Errorf("%+v", info.Config)
	}
	if m, err := b.leader.GetLastMsgForSubject(ctx, subjectOf(bus.BucketTags)+markerKey); err != nil || m.Sequence != b.first {
		t.Errorf("the first record: %+v, %v", m, err)
	}
	writing, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	var ends [4]atomic.Int64 // that were acknowledged
	for i := range ends {
		writers.Go(func() {
			s := allocator.Stored{Tag: trend(fmt.Sprint("tag", i), 1)}
			for writing.Err() == nil {
				s.MaxID++
				revision, err := r.Swap(writing, s.Tag, s.Revision)
				if err == nil {
					s.Revision = revision
					ends[i].Store(s.MaxID)
				} else if now, err := r.Load(writing, s.Name); err == nil && now.Revision > 0 {
					s = now
				}
			}
		})
	}
	w := followTags(t, r)
	for range 40 {
		var least [len(ends)]int64
		for i := range ends {
			least[i] = ends[i].Load()
		}
		sync1(t, r)
		for i, least := range least {
			if end := w.end(fmt.Sprint("tag", i)); end < least {
				t.Errorf("tag%d is at %d after a Sync, and %d was acknowledged before", i, end, least)
			}
		}
	}
}

// A record that is accepted says where the tag is: what is written back says the same.
func FuzzTagRecord(f *testing.F) {
	for _, t := range []allocator.Tag{
		trend("order", 11),
		{Name: "order", MaxID: 7, Floor: 7, Deleted: true, Order: allocator.Strict, Rules: allocator.Rules{Version: 9, Paused: true}},
		{Name: "order", MaxID: 7, Step: 1, Order: "opaque-d9", KeyID: "k", Rules: allocator.Rules{Limit: 999_999_999}},
	} {
		data, err := encodeTag(t, 77)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, damaged := range []string{
		``, `{}`, `null`, `{"format":2,"ends":[]}`, `{"format":1,"bucket":"77","tag":"other","end":"1","step":1}`,
		`{"format":1,"bucket":"77","tag":"order","end":"1","step":1,"more":1}`, `{"format":1,"bucket":"77","tag":"order","end":"1","step":1}x`,
		`{"format":1,"bucket":"77","tag":"order","end":"1","floor":"2","step":1}`, `{"format":1,"bucket":"77","tag":"order","end":"0","step":1}`,
		`{"format":1,"bucket":"77","tag":"order","end":"1","step":0}`, `{"format":1,"tag":"order","end":"1","step":1}`,
	} {
		if _, _, err := decodeRecord("order", []byte(damaged)); !errors.Is(err, allocator.ErrDamaged) && !errors.Is(err, allocator.ErrNewer) {
			f.Errorf("%s: %v", damaged, err)
		}
		f.Add([]byte(damaged))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tag, bucket, err := decodeRecord("order", data)
		if err != nil {
			if tag != (allocator.Tag{}) || !errors.Is(err, allocator.ErrDamaged) && !errors.Is(err, allocator.ErrNewer) {
				t.Fatalf("%+v, %v", tag, err)
			}
			return
		}
		strict, domain := tag.Order == allocator.Strict && tag.Step == 0, tag.Order.Domain()
		if tag.MaxID < 1 || !strict && (tag.Step < 1 || tag.Order != allocator.Trend && domain == "") || tag.Name != "order" || bucket == 0 ||
			(domain != "") != (tag.KeyID != "") || domain != "" && tag.Left(domain.Last()) > 1 {
			t.Fatalf("%q reads as %+v of %d", data, tag, bucket)
		}
		again, err := encodeTag(tag, bucket)
		if err != nil {
			return // a year that JSON cannot carry
		}
		back, of, err := decodeRecord("order", again)
		same := back.Updated.Equal(tag.Updated) && back.Last.Time.Equal(tag.Last.Time)
		back.Updated, back.Last.Time = tag.Updated, tag.Last.Time
		if err != nil || of != bucket || back != tag || !same {
			t.Fatalf("%s reads as %+v of %d, %v", again, back, of, err)
		}
	})
}
