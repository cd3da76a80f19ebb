package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
)

const (
	// lookBack is how old alerts may be when the feed begins.
	lookBack = 7 * 24 * time.Hour
	// maxShown is how many events, and how many alerts, are shown.
	maxShown = 100
	// feedPause is how long the feed rests after it was broken off, and troubled
	// how long that is told.
	feedPause = time.Second
	troubled  = 10 * time.Second
)

// feed keeps the latest events and alerts of all generators. It hears the events as
// they are told, and reads the alerts and what ends them from the stream too, where there is
// one: so it knows those from before its start, and hears new ones while
// the stream is away. Its methods are safe for concurrent use.
type feed struct {
	c *bus.Client

	mu      sync.Mutex
	events  []event // the newest last
	alerts  alerts
	place   int // of the last event that was read
	trouble string
	when    time.Time // of the trouble
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
}

// feedView is what the dashboard shows of the feed.
type feedView struct {
	Problem string   `json:"problem"`
	Lasting int      `json:"lasting"` // alerts that last, in all
	Gone    int      `json:"gone"`    // and those whose generator is gone
	Alerts  []notice `json:"alerts"`  // those that last first, those that are over last, the newest of each first
	Events  []event  `json:"events"`  // the newest first
}

func newFeed(c *bus.Client) *feed {
	return &feed{c: c, alerts: alerts{of: make(map[string]map[episode]*notice)}}
}

// run follows the events until the context is done.
func (f *feed) run(ctx context.Context) {
	begun := time.Now()
	var both sync.WaitGroup
	both.Go(func() { f.follow(ctx, f.hear, bus.Live()) })
	both.Go(func() { f.follow(ctx, f.read, bus.Episodes(), bus.Since(begun.Add(-lookBack))) })
	both.Wait()
}

// follow takes in events, and begins anew when it is broken off. It tells of trouble
// that lasts: at the first start of an installation the stream is about to be made.
func (f *feed) follow(ctx context.Context, take func(bus.Event), opts ...bus.EventOption) {
	for inVain := 0; ; {
		begun := time.Now()
		var broken error
		for e, err := range f.c.Events(ctx, opts...) {
			switch {
			case errors.Is(err, bus.ErrNotAnEvent): // one message
			case err != nil:
				broken = err
			default:
				take(e)
			}
		}
		if inVain++; time.Since(begun) > troubled {
			inVain = 0
		}
		if inVain > 1 && broken != nil {
			f.mu.Lock()
			f.trouble, f.when = inWords(broken), time.Now()
			f.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(feedPause):
		}
	}
}

// hear takes in an event that is told.
func (f *feed) hear(e bus.Event) {
	shown := show(e)
	f.mu.Lock()
	defer f.mu.Unlock()
	// While the stream is away an event is told again and again.
	if !f.knowsLocked(shown.ID) {
		if len(f.events) == maxShown {
			f.events = f.events[:copy(f.events, f.events[1:])]
		}
		f.events = append(f.events, shown)
	}
	f.alerts.note(e, 0)
}

func (f *feed) knowsLocked(id string) bool {
	for i := range f.events { // by index: events are large
		if f.events[i].ID == id {
			return true
		}
	}
	return false
}

// read takes in an event from the stream. When the stream is read anew, each takes
// the place that is its own among the others then.
func (f *feed) read(e bus.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.place++
	f.alerts.note(e, f.place)
}

func show(e bus.Event) event {
	return event{e.ID, e.Time, e.Severity, e.Type, e.Key, nodeOf(e), e.Data}
}

func nodeOf(e bus.Event) string { return strings.TrimPrefix(e.Source, "/leaf/") }

// inWords is an error about the events for people.
func inWords(err error) string {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "No events are kept yet: a generator makes the stream " + bus.EventStream + " when it has the first to tell"
	}
	return err.Error()
}

// view is what is known now. running reports whether a generator is there; nil: that is
// not known.
func (f *feed) view(running func(node string) bool) feedView {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := feedView{Alerts: f.alerts.all(running), Events: append([]event{}, f.events...)}
	slices.Reverse(v.Events)
	if time.Since(f.when) < troubled {
		v.Problem = f.trouble
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
	v.Alerts = v.Alerts[:min(len(v.Alerts), maxShown)]
	return v
}
