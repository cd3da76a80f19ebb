package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/events"
)

// maxShown is how many events are shown.
const maxShown = 100

// latest are the last events of the stream. Only one caller at a time reads them.
type latest struct {
	js     jetstream.JetStream
	events []events.Event // the newest first
	read   uint64         // sequence number of the last one
}

// latestView is what the dashboard shows of them.
type latestView struct {
	Problem string         `json:"problem"` // why some may be missing
	Events  []events.Event `json:"events"`
}

// ask reads what has come since the last time.
func (l *latest) ask(ctx context.Context, _ struct{}) latestView {
	err := l.readOn(ctx)
	view := latestView{Events: append([]events.Event{}, l.events...)}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) { // the first event makes the stream
		view.Problem = "New events cannot be read: " + message(err)
	}
	return view
}

func (l *latest) readOn(ctx context.Context) error {
	stream, err := l.js.Stream(ctx, events.Stream)
	if err != nil {
		return err
	}
	has := stream.CachedInfo().State
	if has.LastSeq < l.read { // it was lost, and made again
		l.events, l.read = nil, 0
	}
	for next := max(l.read+1, has.FirstSeq, max(has.LastSeq, maxShown)-maxShown+1); next <= has.LastSeq; next++ {
		m, err := stream.GetMsg(ctx, next)
		if errors.Is(err, jetstream.ErrMsgNotFound) { // it was removed, or has not come to this replica yet
			continue
		}
		if err != nil {
			return err
		}
		l.read = next
		if e, err := events.Parse(m.Subject, m.Header, m.Data); err == nil {
			l.events = slices.Insert(l.events[:min(len(l.events), maxShown-1)], 0, e)
		}
	}
	return nil
}
