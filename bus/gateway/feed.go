package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/events"
)

const (
	// lookBack is how old alerts may be when the feed begins.
	lookBack = 7 * 24 * time.Hour
	// maxShown is how many events are shown.
	maxShown = 100
	// feedPause is the pause before the feed follows the events again after an error;
	// problemShown is how long the error is shown.
	feedPause    = time.Second
	problemShown = 10 * time.Second
)

// feed keeps the latest events and alerts of all generators. It hears events live, and
// reads alerts and their ends from the stream too, if there is one. So it knows those from
// before its start, and hears new ones while the stream is unavailable. Its methods are
// safe for concurrent use.
type feed struct {
	nc *nats.Conn
	js jetstream.JetStream

	mu       sync.Mutex
	events   []event // the newest last
	alerts   alerts
	position int // in the stream, of the last event that was read
	problem  string
	when     time.Time // of the problem
}

// event is an event as the dashboard shows it.
type event struct {
	ID       string          `json:"id"`
	Time     time.Time       `json:"time"`
	Severity string          `json:"severity"`
	Type     string          `json:"type"`
	Key      string          `json:"key"`
	Node     string          `json:"node"`
	Body     json.RawMessage `json:"body"`

	body any // Body as a type of package events
}

// feedView is what the dashboard shows of the feed.
type feedView struct {
	Problem string      `json:"problem"`
	Lasting int         `json:"lasting"` // all lasting alerts, without those with Gone
	Gone    int         `json:"gone"`    // those of generators that do not answer
	Causes  []causeView `json:"causes"`  // of all these, the most urgent first
	Ended   int         `json:"ended"`   // alerts that ended
	Past    []notice    `json:"past"`    // the latest of those
	Events  []event     `json:"events"`  // the newest first

	// Alerts are all alerts: the lasting first, then those with Gone, then the ended; the newest of each first.
	Alerts []notice `json:"-"`
}

func newFeed(nc *nats.Conn, js jetstream.JetStream) *feed {
	return &feed{nc: nc, js: js, alerts: alerts{of: make(map[string]map[episode]*notice)}}
}

// run follows the events until the context is done.
func (f *feed) run(ctx context.Context) {
	begun := time.Now()
	var both sync.WaitGroup
	both.Go(func() { f.follow(ctx, f.addLive, events.Live()) })
	both.Go(func() { f.follow(ctx, f.addStored, events.Episodes(), events.Since(begun.Add(-lookBack))) })
	both.Wait()
}

// follow takes in events, and begins again after an error. It shows the second error in a
// row: at the first start of an installation the stream does not exist yet.
func (f *feed) follow(ctx context.Context, take func(events.Event), opts ...events.Option) {
	for failures := 0; ; {
		begun := time.Now()
		var failed error
		for e, err := range events.Follow(ctx, f.nc, append(opts, events.JetStream(f.js))...) {
			switch {
			case errors.Is(err, events.ErrNotAnEvent): // only this message
			case err != nil:
				failed = err
			default:
				take(e)
			}
		}
		if failures++; time.Since(begun) > problemShown {
			failures = 0
		}
		if failures > 1 && failed != nil {
			f.mu.Lock()
			f.problem, f.when = explain(failed), time.Now()
			f.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(feedPause):
		}
	}
}

// addLive takes in an event that was heard live.
func (f *feed) addLive(e events.Event) {
	shown := show(e)
	f.mu.Lock()
	defer f.mu.Unlock()
	// While the stream is unavailable an event is published again and again.
	if !slices.ContainsFunc(f.events, func(e event) bool { return e.ID == shown.ID }) {
		if len(f.events) == maxShown {
			f.events = f.events[:copy(f.events, f.events[1:])]
		}
		f.events = append(f.events, shown)
	}
	f.alerts.add(e, 0)
}

// addStored takes in an event from the stream. If the stream is read again, the events get
// new positions, in the same order.
func (f *feed) addStored(e events.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.position++
	f.alerts.add(e, f.position)
}

func show(e events.Event) event {
	return event{e.ID, e.Time, e.Severity, e.Type, e.Key, nodeOf(e), e.Data, e.Body}
}

// nodeOf is the generator that an event is about. Any of its peers may have published that it is lost, or was.
func nodeOf(e events.Event) string {
	if strings.HasPrefix(e.Type, "leaf.node.") {
		return e.Key
	}
	return strings.TrimPrefix(e.Source, "/leaf/")
}

// explain is the text of an error for people.
func explain(err error) string {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "No events are stored yet: a generator creates the stream " + events.Stream + " for its first event"
	}
	return err.Error()
}

// view returns what the feed knows now. running reports whether a generator runs; nil:
// that is not known.
func (f *feed) view(running func(node string) bool) feedView {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := feedView{Alerts: f.alerts.all(running), Events: append([]event{}, f.events...)}
	slices.Reverse(v.Events)
	if time.Since(f.when) < problemShown {
		v.Problem = f.problem
	}
	for _, n := range v.Alerts {
		switch {
		case n.Gone:
			v.Gone++
		case n.Over.IsZero():
			v.Lasting++
		}
	}
	slices.SortFunc(v.Alerts, func(x, y notice) int { return y.compare(x) })
	return v
}
