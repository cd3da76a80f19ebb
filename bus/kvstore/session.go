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
	// heartbeat is how often an idle consumer says that it is there, and silence how long it may
	// say nothing.
	heartbeat = time.Second
	silence   = 3 * time.Second
	// beatTimeout bounds an own write, and beatAgain is how long a position that is far enough may
	// go on counting records that were replaced.
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

// Watch implements [allocator.Records] by one session after the other. A session reads all records,
// and then the changes. None continues at a revision that another one has reached: a bucket that
// was restored, and grew past it, hides what was written below.
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

// session is one reading of the bucket: all records, and then the changes.
type session struct {
	*Records
	bucket
	f        func(allocator.Update)
	consumer string
	messages <-chan *nats.Msg
	synced   bool

	got     uint64 // how many messages the consumer has delivered
	at      uint64 // the sequence of the last one
	pending uint64 // how many followed it then
}

// session reads until something is wrong, or a new session is wanted:
//
//	session → follow → sync → next → take
//	                 → next → take
func (r *Records) session(
	ctx context.Context, f func(allocator.Update), connected <-chan nats.Status,
) (synced bool, err error) {
	for len(connected) > 0 {
		<-connected
	}
	select { // what was wanted before begins now
	case <-r.again:
	default:
	}
	r.mu.Lock()
	r.begun++
	number := r.begun
	r.mu.Unlock()
	if r.bucket.Load() == nil {
		return false, errNotOpen
	}
	s := &session{Records: r, f: f, consumer: rand.Text()}
	ctx, end := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer end(nil)
	waiting.Go(func() {
		select {
		case <-connected:
			r.wake() // also where this session ends for another reason
			end(errAgain)
		case <-ctx.Done():
		}
	})
	err = s.follow(ctx, func() {
		s.synced = true
		r.mu.Lock()
		defer r.mu.Unlock()
		r.synced = number
		close(r.news)
		r.news = make(chan struct{})
	})
	return s.synced, err
}

// follow calls synced when the session is synced, and goes on.
func (s *session) follow(ctx context.Context, synced func()) (err error) {
	finding, found := context.WithTimeout(ctx, loadTimeout)
	s.bucket, err = find(finding, s.cfg, wire.BucketTags) // it may have been made again
	found()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if lost, unknown := s.look(ctx); !errors.Is(lost, allocator.ErrTagsLost) { // then `leaf restore` makes it
			return errors.Join(lost, unknown)
		}
		s.bucket, err = open(ctx, s.cfg, wire.BucketTags)
	}
	if err != nil {
		return err
	}
	s.Records.bucket.Store(&s.bucket)
	select {
	case s.lookNow <- struct{}{}:
	default:
	}
	wrote, err := s.writeBeat(ctx)
	if err == nil {
		err = s.subscribe(ctx)
	}
	if err == nil {
		err = s.sync(ctx, wrote)
	}
	if err != nil {
		return err
	}
	synced()
	for err == nil {
		_, err = s.next(ctx, nil)
	}
	return err
}

// sync reads until an own write was acknowledged, and the reading then went past it, twice in a
// row. wrote is the sequence of the first one. Once does not do: a consumer skips the records that
// were replaced, and counts them a moment later.
func (s *session) sync(ctx context.Context, wrote uint64) error {
	for passed := 0; ; {
		for s.at < wrote || s.pending > 0 {
			var late <-chan time.Time
			if s.at >= wrote {
				late = time.After(beatAgain)
			}
			if came, err := s.next(ctx, late); err != nil {
				return err
			} else if !came {
				break
			}
		}
		if s.pending == 0 {
			if passed++; passed == 2 {
				return nil
			}
		}
		var err error
		if wrote, err = s.writeBeat(ctx); err != nil {
			return err
		}
		if wrote <= s.at {
			return errors.New("the bucket was made again")
		}
	}
}

// writeBeat sends an own write, and returns its sequence.
func (s *session) writeBeat(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	return s.write(ctx, s.bucket, s.beat, nil)
}

// next handles the next message. came is false if none came until late.
func (s *session) next(ctx context.Context, late <-chan time.Time) (came bool, err error) {
	var again <-chan struct{}
	if s.synced { // else sessions that are often wanted would never end
		again = s.again
	}
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-again:
		return false, errAgain
	case <-time.After(silence):
		return false, fmt.Errorf("the consumer said nothing for %v", silence)
	case <-late:
		return false, nil
	case m := <-s.messages:
		return true, s.take(ctx, m)
	}
}

// subscribe makes the consumer. It is in memory, on any server of the cluster, and may be behind
// there.
func (s *session) subscribe(ctx context.Context) error {
	conn := s.cfg.JS.Conn()
	messages, inbox := make(chan *nats.Msg), conn.NewInbox()
	sub, err := conn.Subscribe(inbox, func(m *nats.Msg) {
		select {
		case messages <- m:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return err
	}
	s.messages = messages
	context.AfterFunc(ctx, func() { _ = sub.Unsubscribe() })
	making, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	_, err = s.cfg.JS.CreatePushConsumer(making, streamOf(wire.BucketTags), jetstream.ConsumerConfig{
		Name: s.consumer, DeliverSubject: inbox,
		DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: consumerLife,
		FlowControl: true, IdleHeartbeat: heartbeat,
	})
	return err
}

// take handles a message of the consumer. The error of one that is not the next shows a gap, or a
// consumer that began again because its server came back.
func (s *session) take(ctx context.Context, m *nats.Msg) error {
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
	stored, err := s.stored(ctx, Record{Key: key, Value: m.Data, revision: s.at})
	if errors.Is(err, errRemade) {
		return err
	}
	if err == nil && stored.Revision == 0 {
		return nil
	}
	s.saw(s.at)
	s.f(allocator.Update{Stored: stored, Problem: err, First: !s.synced})
	return nil
}

// control answers flow control, without which the consumer stops, and compares a heartbeat with
// what has come.
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
