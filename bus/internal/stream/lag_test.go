package stream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// lagging is a JetStream with an event stream of which the leader has messages up to last. A consumer is at a replica
// that lags behind: again and again it has no more messages, and a second later it has.
type lagging struct {
	jetstream.JetStream
	last uint64
}

func (l lagging) Stream(context.Context, string) (jetstream.Stream, error) {
	return laggingStream{last: l.last}, nil
}

type laggingStream struct {
	jetstream.Stream
	last uint64
}

func (laggingStream) CachedInfo() *jetstream.StreamInfo { return &jetstream.StreamInfo{} }

func (s laggingStream) GetLastMsgForSubject(context.Context, string) (*jetstream.RawStreamMsg, error) {
	return &jetstream.RawStreamMsg{Sequence: s.last}, nil
}

func (s laggingStream) OrderedConsumer(context.Context, jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	return laggingConsumer{}, nil
}

func (laggingStream) DeleteConsumer(context.Context, string) error { return nil }

type laggingConsumer struct{ jetstream.Consumer }

func (laggingConsumer) CachedInfo() *jetstream.ConsumerInfo { return &jetstream.ConsumerInfo{} } // nothing is pending

func (laggingConsumer) Messages(...jetstream.PullMessagesOpt) (jetstream.MessagesContext, error) {
	return &laggingMessages{}, nil
}

type laggingMessages struct {
	jetstream.MessagesContext
	sequence uint64
}

func (m *laggingMessages) Next(...jetstream.NextOpt) (jetstream.Msg, error) {
	time.Sleep(time.Second)
	m.sequence++
	return laggingMsg{sequence: m.sequence}, nil
}

func (*laggingMessages) Stop() {}

type laggingMsg struct {
	jetstream.Msg
	sequence uint64
}

func (m laggingMsg) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: m.sequence}}, nil
}

// A reading waits for a replica that lags behind, until it has what the leader of the stream had when the reading
// began.
func TestReadingFromAReplicaThatLags(t *testing.T) {
	for _, policy := range []jetstream.DeliverPolicy{jetstream.DeliverAllPolicy, jetstream.DeliverLastPerSubjectPolicy} {
		synctest.Test(t, func(t *testing.T) {
			var read []uint64
			err := Read(t.Context(), lagging{last: 3}, "S", "s.>", policy, func(_ jetstream.Msg, sequence, _ uint64) {
				read = append(read, sequence)
			})
			if err != nil || fmt.Sprint(read) != "[1 2 3]" {
				t.Errorf("%v: %v were read, %v", policy, read, err)
			}
		})
	}
}

// deposed is a JetStream of a server that is cut off, and does not know yet that it does not lead the event stream any
// more. Its stream has no message that is asked for. A majority would have to make a consumer.
type deposed struct{ jetstream.JetStream }

func (deposed) Stream(context.Context, string) (jetstream.Stream, error) { return deposedStream{}, nil }

type deposedStream struct{ laggingStream }

func (deposedStream) GetLastMsgForSubject(context.Context, string) (*jetstream.RawStreamMsg, error) {
	return nil, jetstream.ErrMsgNotFound
}

func (deposedStream) OrderedConsumer(ctx context.Context, _ jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A server that is cut off does not show that there are no messages.
func TestReadingFromADeposedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := Read(t.Context(), deposed{}, "S", "s.>", jetstream.DeliverAllPolicy, nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
