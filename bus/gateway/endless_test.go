package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// endless is a JetStream with an event stream that an audit never comes to the end of: an event comes each second.
type endless struct {
	jetstream.JetStream
	asked chan struct{}
}

func (e endless) Stream(context.Context, string) (jetstream.Stream, error) {
	e.asked <- struct{}{}
	return endlessStream{}, nil
}

type endlessStream struct{ jetstream.Stream }

func (endlessStream) CachedInfo() *jetstream.StreamInfo {
	return &jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: 1 << 60}}
}

func (endlessStream) GetLastMsgForSubject(context.Context, string) (*jetstream.RawStreamMsg, error) {
	return &jetstream.RawStreamMsg{Sequence: 1 << 60}, nil
}

func (endlessStream) OrderedConsumer(context.Context, jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	return endlessConsumer{}, nil
}

func (endlessStream) DeleteConsumer(context.Context, string) error { return nil }

type endlessConsumer struct{ jetstream.Consumer }

func (endlessConsumer) CachedInfo() *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{NumPending: 1}
}

func (endlessConsumer) Messages(...jetstream.PullMessagesOpt) (jetstream.MessagesContext, error) {
	stopped := make(chan struct{})
	return endlessMessages{stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) })}, nil
}

type endlessMessages struct {
	jetstream.MessagesContext
	stopped chan struct{}
	stop    func()
}

func (m endlessMessages) Next(...jetstream.NextOpt) (jetstream.Msg, error) {
	select {
	case <-time.After(time.Second):
		return endlessMsg{}, nil
	case <-m.stopped:
		return nil, jetstream.ErrMsgIteratorClosed
	}
}

func (m endlessMessages) Stop() { m.stop() }

type endlessMsg struct{ jetstream.Msg }

func (endlessMsg) Subject() string      { return "leaf.events.info.node.started.one" }
func (endlessMsg) Headers() nats.Header { return nil }
func (endlessMsg) Data() []byte         { return nil }
func (endlessMsg) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{NumPending: 1}, nil
}
