package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/tests/chaos/judge"
)

// Where an operator can see a fault.
const (
	byReadiness = "readiness"
	byNodes     = "leaf nodes"
	byAlert     = "alert"
)

var shownAt = []string{byReadiness, byNodes, byAlert}

// watch looks at the installation as an operator and a load balancer do, and remembers when something showed.
type watch struct {
	w     *world
	mu    sync.Mutex
	shown map[string][]time.Time // by where it showed
	heard map[string]bool        // IDs of alerts: one is published again and again while the stream is unavailable
}

func (w *world) look() *watch {
	l := &watch{w: w, shown: make(map[string][]time.Time), heard: make(map[string]bool)}
	for _, m := range w.machines {
		go l.readiness(m)
	}
	go l.nodes()
	if _, err := w.nc.Subscribe("leaf.events.>", l.event); err != nil {
		w.Fatal(err)
	}
	return l
}

func (l *watch) show(where string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown[where] = append(l.shown[where], time.Now())
}

// first is how long after from it showed there, if it did before until.
func (l *watch) first(where string, from, until time.Time) (after time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.shown[where] {
		if at.After(from) && at.Before(until) {
			return at.Sub(from), true
		}
	}
	return 0, false
}

// readiness asks a machine all the time, past its links. A change from ready to not ready shows a fault.
func (l *watch) readiness(m *machine) {
	ready := false
	for ; l.w.ctx.Err() == nil; l.w.pause(200 * time.Millisecond) {
		status, body := m.readyz()
		if ready && status != http.StatusOK {
			l.show(byReadiness)
			l.w.note("%s is not ready: %d %s", m.name, status, strings.TrimSpace(body))
		}
		ready = status == http.StatusOK
	}
}

// nodes runs leaf nodes all the time.
func (l *watch) nodes() {
	whole := false
	for ; l.w.ctx.Err() == nil; l.w.pause(time.Second) {
		r := l.w.runLeaf(10*time.Second, "nodes", "--json", "-s", l.w.urls())
		var seen struct {
			Lost  []json.RawMessage
			Nodes []struct{ Ready bool }
		}
		now := r.Status == 0 && json.Unmarshal([]byte(r.Stdout), &seen) == nil && len(seen.Lost) == 0 &&
			len(seen.Nodes) >= len(l.w.machines)
		for _, n := range seen.Nodes {
			now = now && n.Ready
		}
		if whole && !now {
			l.show(byNodes)
			l.w.note("leaf nodes shows it")
		}
		whole = now
	}
}

func (l *watch) event(msg *nats.Msg) {
	e, err := events.Parse(msg.Subject, msg.Header, msg.Data)
	if err != nil {
		l.w.report(&judge.Violation{Check: "event", Text: msg.Subject + ": " + err.Error(), At: time.Now()})
		return
	}
	what := strings.TrimPrefix(msg.Subject, "leaf.events.")
	if strings.HasPrefix(what, "info.segment.refill.") {
		return
	}
	l.mu.Lock()
	again := l.heard[e.ID]
	l.heard[e.ID] = true
	l.mu.Unlock()
	if again {
		return
	}
	l.w.note("event %s %s", what, msg.Data)
	if e.Severity == "alert" {
		l.show(byAlert)
	}
}
