package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus"
)

const (
	// lookBack is how old alerts may be when the feed begins.
	lookBack = 7 * 24 * time.Hour
	// maxShown is how many events, and how many alerts, are shown.
	maxShown = 100
	// maxAlerts is how many alerts are remembered, of which those that last matter.
	maxAlerts = 10_000
	// feedPause is how long the feed rests after it was broken off, and troubled
	// how long that is told.
	feedPause = time.Second
	troubled  = 10 * time.Second
)

// feed keeps the latest events and alerts of all generators. It hears the events as
// they are told, and reads the alerts and their ends from the stream too, where there is
// one: so it knows those from before its start, and hears new ones while
// the stream is away. Its methods are safe for concurrent use.
type feed struct {
	c *bus.Client

	mu      sync.Mutex
	events  []event             // the newest last
	alerts  map[episode]*notice // the latest of each episode
	trouble error
	when    time.Time // of the trouble
}

// episode is what an alert is about.
type episode struct{ node, what, key string }

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

// notice is an alert, and since when it is over.
type notice struct {
	event
	Over time.Time `json:"over,omitzero"`
}

// feedView is what the dashboard shows of the feed.
type feedView struct {
	Problem string   `json:"problem"`
	Lasting int      `json:"lasting"` // alerts that last, in all
	Alerts  []notice `json:"alerts"`  // those that last first, the newest of each first
	Events  []event  `json:"events"`  // the newest first
}

func newFeed(c *bus.Client) *feed { return &feed{c: c, alerts: make(map[episode]*notice)} }

// run follows the events until the context is done.
func (f *feed) run(ctx context.Context) {
	begun := time.Now()
	var both sync.WaitGroup
	both.Go(func() { f.follow(ctx, f.hear, bus.Live()) })
	both.Go(func() { f.follow(ctx, f.note, bus.Episodes(), bus.Since(begun.Add(-lookBack))) })
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
			f.trouble, f.when = broken, time.Now()
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
	// While the stream is away an event is told again and again.
	if !f.knowsLocked(shown.ID) {
		if len(f.events) == maxShown {
			f.events = f.events[:copy(f.events, f.events[1:])]
		}
		f.events = append(f.events, shown)
	}
	f.mu.Unlock()
	f.note(e)
}

func (f *feed) knowsLocked(id string) bool {
	for i := range f.events { // by index: events are large
		if f.events[i].ID == id {
			return true
		}
	}
	return false
}

// note takes in an alert, or the end of one; it may come twice, and late.
func (f *feed) note(e bus.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	shown := show(e)
	if body, ok := e.Body.(bus.RecoveredEvent); ok {
		kind, _ := strings.CutSuffix(e.Type, "recovered")
		n := f.alerts[episode{shown.Node, kind + body.Episode, e.Key}]
		if n != nil && n.Over.IsZero() && !e.Time.Before(n.Time) {
			n.Over = e.Time
		}
		return
	}
	if e.Severity != "alert" {
		return
	}
	about := episode{shown.Node, e.Type, e.Key}
	if n := f.alerts[about]; n != nil && !e.Time.After(n.Time) {
		return
	}
	if len(f.alerts) >= maxAlerts && f.alerts[about] == nil {
		f.forgetLocked()
	}
	f.alerts[about] = &notice{event: shown}
}

// forgetLocked forgets a tenth of the alerts, so that it is not needed with each: those that
// are over first, and of them, and of the others, the oldest.
func (f *feed) forgetLocked() {
	all := slices.SortedFunc(maps.Keys(f.alerts), func(x, y episode) int {
		switch {
		case f.alerts[x].sooner(f.alerts[y]):
			return -1
		case f.alerts[y].sooner(f.alerts[x]):
			return 1
		}
		return 0
	})
	for _, about := range all[:maxAlerts/10] {
		delete(f.alerts, about)
	}
}

// sooner reports whether n is less worth to be remembered than other.
func (n *notice) sooner(other *notice) bool {
	if n.Over.IsZero() != other.Over.IsZero() {
		return !n.Over.IsZero()
	}
	return n.Time.Before(other.Time)
}

func show(e bus.Event) event {
	return event{e.ID, e.Time, e.Severity, e.Type, e.Key, strings.TrimPrefix(e.Source, "/leaf/"), e.Data}
}

func (f *feed) view() feedView {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := feedView{Alerts: []notice{}, Events: slices.Clone(f.events)}
	slices.Reverse(v.Events)
	if v.Events == nil {
		v.Events = []event{}
	}
	if time.Since(f.when) < troubled {
		v.Problem = f.trouble.Error()
	}
	for _, n := range f.alerts {
		v.Alerts = append(v.Alerts, *n)
		if n.Over.IsZero() {
			v.Lasting++
		}
	}
	slices.SortFunc(v.Alerts, func(x, y notice) int {
		switch {
		case y.sooner(&x):
			return -1
		case x.sooner(&y):
			return 1
		}
		return cmp.Compare(x.ID, y.ID)
	})
	v.Alerts = v.Alerts[:min(len(v.Alerts), maxShown)]
	return v
}
