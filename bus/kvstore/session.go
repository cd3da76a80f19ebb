package kvstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// lookEach is how often a watch looks whether JetStream lost anything.
	lookEach = 5 * time.Second
	// lookTimeout bounds a look.
	lookTimeout = 2 * time.Second
	// heartbeat is how often an idle consumer says that it is there, and silence how long it may say nothing.
	heartbeat = time.Second
	silence   = 3 * time.Second
	// beatTimeout bounds an own write, and beatAgain is how long a position that is far enough may go on counting
	// records that were replaced.
	beatTimeout = 3 * time.Second
	beatAgain   = 20 * time.Millisecond
	// Pauses after a session that failed: they double from the first to the last.
	firstSessionPause = 50 * time.Millisecond
	lastSessionPause  = 2 * time.Second
	// consumerLife is how long the server keeps a consumer that nobody reads.
	consumerLife = 10 * time.Second
)

// errAgain ends a session because a new one is wanted.
var errAgain = errors.New("a new session is wanted")

// Watch implements [allocator.Records] by one session after the other. A session reads all records, and then the
// changes. None continues at a revision that another one has reached: a bucket that was restored, and grew past it,
// hides what was written below.
func (r *Records) Watch(ctx context.Context, f func(allocator.Update)) error {
	connected := r.cfg.JS.Conn().StatusChanged(nats.CONNECTED)
	defer r.cfg.JS.Conn().RemoveStatusListener(connected)
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() { r.keepLooking(ctx) })
	for pause := firstSessionPause; ; {
		synced, err := r.session(ctx, f, connected)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errAgain):
			continue
		case synced:
			pause = firstSessionPause
		}
		r.cfg.log().Debug("the records of the tags are read again", "because", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-connected:
		case <-r.again:
		case <-time.After(pause):
		}
		pause = min(2*pause, lastSessionPause)
	}
}

// Sync implements [allocator.Records].
func (r *Records) Sync(ctx context.Context) error {
	r.mu.Lock()
	wanted := r.begun + 1
	r.mu.Unlock()
	r.wake()
	for {
		r.mu.Lock()
		synced, news := r.synced, r.news
		r.mu.Unlock()
		if synced >= wanted {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("%w: the records of the tags could not be read in time: %w",
				allocator.ErrUnavailable, ctx.Err())
		}
	}
}

// keepLooking keeps what JetStream lost for Err.
func (r *Records) keepLooking(ctx context.Context) {
	tick := time.NewTicker(lookEach)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.lookNow:
		}
		if r.bucket.Load() == nil {
			continue
		}
		looking, cancel := context.WithTimeout(ctx, lookTimeout)
		_, _ = r.look(looking) // after an error what was known before stays
		if r.Unwritable() != nil {
			_ = r.probe(looking)
		}
		cancel()
	}
}

// session is one reading of the bucket: all records, and then the changes.
type session struct {
	*Records
	tagsBucket
	f        func(allocator.Update)
	consumer string
	number   int
	synced   bool

	got     uint64 // how many messages the consumer has delivered
	at      uint64 // the sequence of the last one
	pending uint64 // how many followed it then

	// A session is synced when an own write was acknowledged, and the reading then went past it, twice in a row. Once
	// does not do: a consumer skips the records that were replaced, and counts them a moment later.
	passed int       // writes that the reading has passed
	beatAt uint64    // the sequence of the own write; 0: it is under way
	before uint64    // how far the reading was when it was sent
	acked  chan beat // its answer
}

// beat is the answer to an own write.
type beat struct {
	sequence uint64
	err      error
}

// session reads until something is wrong, or a new session is wanted.
func (r *Records) session(
	ctx context.Context, f func(allocator.Update), connected <-chan nats.Status,
) (synced bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for len(connected) > 0 {
		<-connected
	}
	select { // what was wanted before begins now
	case <-r.again:
	default:
	}
	s := &session{Records: r, f: f, consumer: rand.Text(), acked: make(chan beat, 1)}
	r.mu.Lock()
	r.begun++
	s.number = r.begun
	r.mu.Unlock()
	if r.bucket.Load() == nil {
		return false, errNotOpen
	}
	finding, found := context.WithTimeout(ctx, loadTimeout)
	s.tagsBucket, err = findTags(finding, r.cfg) // it may have been made again
	found()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if lost, unknown := r.look(ctx); !errors.Is(lost, allocator.ErrTagsLost) { // then `leaf restore` makes it
			return false, errors.Join(lost, unknown)
		}
		s.tagsBucket, err = openRecords(ctx, r.cfg)
	}
	if err != nil {
		return false, err
	}
	r.bucket.Store(&s.tagsBucket)
	select {
	case r.lookNow <- struct{}{}:
	default:
	}
	s.beatSoon(ctx)
	select {
	case b := <-s.acked:
		if b.err != nil {
			return false, b.err
		}
		s.beatAt = b.sequence
	case <-ctx.Done():
		return false, ctx.Err()
	}
	messages, err := s.subscribe(ctx)
	if err != nil {
		return false, err
	}
	err = s.read(ctx, messages, connected)
	return s.synced, err
}

// subscribe makes the consumer. It is in memory, on any server of the cluster, and may be behind there.
func (s *session) subscribe(ctx context.Context) (<-chan *nats.Msg, error) {
	conn := s.cfg.JS.Conn()
	messages, inbox := make(chan *nats.Msg), conn.NewInbox()
	sub, err := conn.Subscribe(inbox, func(m *nats.Msg) {
		select {
		case messages <- m:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = sub.Unsubscribe() })
	making, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	_, err = s.cfg.JS.CreatePushConsumer(making, streamOf(wire.BucketTags), jetstream.ConsumerConfig{
		Name: s.consumer, DeliverSubject: inbox,
		DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: consumerLife,
		FlowControl: true, IdleHeartbeat: heartbeat,
	})
	return messages, err
}

func (s *session) read(ctx context.Context, messages <-chan *nats.Msg, connected <-chan nats.Status) error {
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	counted := time.NewTimer(beatAgain)
	counted.Stop()
	for {
		var again <-chan struct{}
		if s.synced { // else sessions that are often wanted would never end
			again = s.again
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-connected:
			return errAgain
		case <-again:
			return errAgain
		case <-quiet.C:
			return fmt.Errorf("the consumer said nothing for %v", silence)
		case <-counted.C:
			s.beatSoon(ctx)
		case b := <-s.acked:
			if b.err != nil {
				return b.err
			}
			if s.beatAt = b.sequence; s.beatAt <= s.before {
				return errors.New("the bucket was made again")
			}
		case m := <-messages:
			if err := s.take(m); err != nil {
				return err
			}
			quiet.Reset(silence)
		}
		if s.synced || s.beatAt == 0 || s.at < s.beatAt {
			continue
		}
		if s.pending > 0 {
			counted.Reset(beatAgain)
			continue
		}
		counted.Stop()
		if s.passed++; s.passed == 1 {
			s.beatSoon(ctx)
			continue
		}
		s.done()
	}
}

// done lets the calls of Sync return that came before the session.
func (s *session) done() {
	s.synced = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Records.synced = s.number
	close(s.news)
	s.news = make(chan struct{})
}

// beatSoon sends an own write. Its answer comes to acked.
func (s *session) beatSoon(ctx context.Context) {
	s.beatAt, s.before = 0, s.at
	go func() {
		ctx, cancel := context.WithTimeout(ctx, beatTimeout)
		defer cancel()
		sequence, err := s.write(ctx, s.beat, nil)
		s.acked <- beat{sequence, err}
	}()
}

// take handles a message of the consumer. The error of one that is not the next shows a gap, or a consumer that began
// again because its server came back.
func (s *session) take(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "100" {
		return s.control(m)
	}
	meta, err := m.Metadata()
	if err != nil || meta.Consumer != s.consumer {
		return fmt.Errorf("a message that is not of the consumer: %s", m.Subject)
	}
	if s.got++; meta.Sequence.Consumer != s.got {
		return fmt.Errorf("message %d of the consumer came in the place of %d", meta.Sequence.Consumer, s.got)
	}
	s.at, s.pending = meta.Sequence.Stream, meta.NumPending
	key := strings.Clone(strings.TrimPrefix(m.Subject, subjectOf(wire.BucketTags)))
	if strings.HasPrefix(key, apart) || idspace.CheckTag(key) != nil {
		return nil
	}
	stored, err := storedTag(s.tagsBucket, key, m.Data, s.at)
	if errors.Is(err, errRemade) {
		looking, cancel := context.WithTimeout(context.Background(), loadTimeout)
		defer cancel()
		if now, unknown := findTags(looking, s.cfg); unknown != nil || now.first != s.first {
			return errors.Join(err, unknown)
		}
		stored, err = s.misnamed(key, s.at)
	}
	if err == nil && stored.Revision == 0 {
		return nil
	}
	s.saw(s.at)
	s.f(allocator.Update{Stored: stored, Problem: err, First: !s.synced})
	return nil
}

// control answers flow control, without which the consumer stops, and compares a heartbeat with what has come.
func (s *session) control(m *nats.Msg) error {
	reply := m.Reply
	if stalled := m.Header.Get("Nats-Consumer-Stalled"); stalled != "" {
		reply = stalled
	}
	if reply != "" {
		return s.cfg.JS.Conn().Publish(reply, nil)
	}
	if last := m.Header.Get("Nats-Last-Consumer"); last != "" && last != strconv.FormatUint(s.got, 10) {
		return fmt.Errorf("the consumer has delivered %s messages, and %d have come", last, s.got)
	}
	return nil
}
