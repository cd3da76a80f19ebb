package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// snapshot copies a bucket with its revisions, as `nats stream backup` does. The function that it returns puts the
// copy in the place of the bucket.
func snapshot(tb testing.TB, s *embedded.Server, bucket string) (restore func()) {
	tb.Helper()
	nc := natskit.Connect(tb, s)
	name := streamOf(bucket)
	inbox := nc.NewInbox()
	chunks, err := nc.SubscribeSync(inbox)
	if err != nil {
		tb.Fatal(err)
	}
	ask := func(subject string, request, answer any) {
		var data []byte
		var m *nats.Msg
		var err error
		if request != nil {
			data, err = json.Marshal(request)
		}
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
	try := func() bool {
		var into struct {
			DeliverSubject string `json:"deliver_subject"`
			Error          any
		}
		ask("$JS.API.STREAM.RESTORE."+name, map[string]any{"config": head.Config, "state": head.State}, &into)
		if into.Error != nil {
			tb.Fatal(into.Error)
		}
		for _, chunk := range copied {
			if _, err := nc.Request(into.DeliverSubject, chunk, testkit.Patience); err != nil {
				tb.Fatal(err)
			}
		}
		var done struct{ Error any }
		if ask(into.DeliverSubject, nil, &done); done.Error != nil {
			tb.Log("restoring:", done.Error)
			ask("$JS.API.STREAM.DELETE."+name, nil, &struct{}{})
		}
		return done.Error == nil
	}
	return func() { // the server may still remove the files of the last stream of that name
		testkit.Eventually(tb, "the server restores the stream", try)
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
	restore := snapshot(t, s, wire.BucketTags)
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
	// A look may have come between the removal and the restore.
	testkit.Eventually(t, "nothing is lost", func() bool { return r.Err() == nil })
}

// A watch begins again after its connection was cut, and when its consumer has gone silent.
func TestRecordsCut(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	link := linkTo(t, s)
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
	testkit.Eventually(t, "a session after the silence", func() bool {
		return w.firsts("order") > begun &&
			w.end("order") == 21
	})
}

// message is one of a consumer.
func message(consumer string, number, sequence, pending int) *nats.Msg {
	return &nats.Msg{Sub: &nats.Subscription{}, Subject: subjectOf(wire.BucketTags) + "order", Data: []byte("x"),
		Reply: fmt.Sprintf("$JS.ACK.KV_LEAF_TAGS.%s.1.%d.%d.1700000000000000000.%d", consumer, sequence, number,
			pending)}
}

// acks is a JetStream in which own writes get these sequences.
type acks struct {
	jetstream.JetStream
	left []uint64
}

func (a *acks) Conn() *nats.Conn { return &nats.Conn{} }

func (a *acks) Options() jetstream.JetStreamOptions { return jetstream.JetStreamOptions{} }

func (a *acks) Publish(context.Context, string, []byte, ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	next := a.left[0]
	a.left = a.left[1:]
	return &jetstream.PubAck{Sequence: next}, nil
}

// A session is synced when it has passed two own writes, one after the other, and nothing followed. A consumer on a
// server that is behind may say so too early, and one that skips replaced records counts them late.
func TestSessionSynced(t *testing.T) {
	t.Parallel()
	cfg := Config{JS: &acks{left: []uint64{20, 22, 22, 22, 22, 22}}, Log: testkit.Quiet}
	messages, ended := make(chan *nats.Msg), make(chan error, 1)
	s := &session{Records: NewRecords(cfg), bucket: bucket{Config: cfg, seen: new(atomic.Uint64)},
		f: func(allocator.Update) {}, consumer: "mine", messages: messages}
	go func() { ended <- s.sync(t.Context(), 10) }()
	for i, m := range [][2]int{{5, 0}, {9, 2}, {11, 0}, {12, 0}, {13, 0}, {21, 2}, {22, 1}} {
		for _, m := range []*nats.Msg{message("mine", i+1, m[0], m[1]), beatOf(strconv.Itoa(i + 1))} {
			select {
			case messages <- m:
			case err := <-ended:
				t.Fatalf("synced before message %d was read: %v", i+1, err)
			}
		}
	}
	messages <- message("mine", 8, 23, 0)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// beatOf is the heartbeat of a consumer which has delivered so many messages.
func beatOf(delivered string) *nats.Msg {
	return &nats.Msg{Header: nats.Header{"Status": {"100"}, "Nats-Last-Consumer": {delivered}}}
}

// A session accepts only the next message of its own consumer, and a heartbeat that fits.
func TestSessionGap(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		messages []*nats.Msg
		ok       bool
	}{
		"in order": {[]*nats.Msg{message("mine", 1, 71, 0), message("mine", 2, 72, 0), beatOf("2"),
			message("mine", 3, 73, 0)}, true},
		"a gap": {[]*nats.Msg{message("mine", 1, 71, 0), message("mine", 3, 73, 0)}, false},
		"begun again": {[]*nats.Msg{message("mine", 1, 71, 0), message("mine", 2, 72, 0),
			message("mine", 1, 71, 0)}, false},
		"another consumer": {[]*nats.Msg{message("mine", 1, 71, 0), message("other", 2, 72, 0)}, false},
		"the last is lost": {[]*nats.Msg{message("mine", 1, 71, 0), beatOf("2")}, false},
	} {
		s := &session{consumer: "mine", f: func(allocator.Update) {}, bucket: bucket{seen: new(atomic.Uint64)}}
		var err error
		for _, m := range c.messages {
			err = errors.Join(err, s.take(t.Context(), m))
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A consumer stops after some thousand records if its flow control gets no answer.
func TestRecordsMany(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	r := openRecordsOf(t, cfg)
	const many = 8000
	for i := range many {
		tag := trend(fmt.Sprint("tag", i), 1)
		tag.Description = strings.Repeat("x", 250)
		data, err := encodeTag(tag, r.bucket.Load().first)
		if err == nil {
			_, err = cfg.JS.PublishAsync(subjectOf(wire.BucketTags)+fmt.Sprint("tag", i), data)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 { // more may not be under way
			<-cfg.JS.PublishAsyncComplete()
		}
	}
	w := followTags(t, r)
	sync1(t, r)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tags) != many {
		t.Errorf("%d of %d records came", len(w.tags), many)
	}
}

// In a cluster revisions begin as asked, and what was written before a Sync has come when it returns: while others
// write, after a change of the leader, and while a server is away.
func TestRecordsInACluster(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3)
	cfg := connect(t, servers[0].ClientURL())
	ctx := testkit.Context(t)
	insist(ctx, t, 10*time.Second, func(ctx context.Context) error {
		return CreateInstallation(ctx, cfg, Installation{ID: "ours"})
	})
	r := NewRecords(cfg)
	insist(ctx, t, 10*time.Second, func(ctx context.Context) error { return r.Open(ctx, Installation{ID: "ours"}) })
	b := r.bucket.Load()
	if info := b.leader.CachedInfo(); info.Config.Replicas != 3 ||
		b.first < uint64(time.Now().Add(-time.Hour).UnixMicro()) {
		t.Errorf("%+v", info.Config)
	}
	if m, err := b.leader.GetLastMsgForSubject(ctx, subjectOf(wire.BucketTags)+markerKey); err != nil ||
		m.Sequence != b.first {
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
	for i := range 40 {
		switch i {
		case 10, 20:
			_, _ = cfg.JS.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+streamOf(wire.BucketTags), nil, testkit.Patience)
		case 30:
			servers[i%len(servers)].stop()
		}
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
