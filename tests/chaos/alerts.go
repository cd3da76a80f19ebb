package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

// alertsEndWithin is how long an alert may last after the last fault.
const alertsEndWithin = 2 * time.Minute

// episodes are the alerts that have no end yet, by the rules of docs/events.md.
type episodes struct {
	mu   sync.Mutex
	seen map[string]bool // IDs of events: the stream is read again after it was lost
	open map[episode]events.Event
}

// episode is what an alert is about. node is the generator that is in trouble.
type episode struct{ node, what, key string }

func newEpisodes() *episodes {
	return &episodes{seen: make(map[string]bool), open: make(map[episode]events.Event)}
}

// add takes in an event, in the order of the stream.
func (s *episodes) add(e events.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, claim := e.Body.(events.Refill); claim || s.seen[e.ID] {
		return
	}
	s.seen[e.ID] = true
	node := strings.TrimPrefix(e.Source, "/leaf/")
	if strings.HasPrefix(e.Type, "leaf.node.") {
		node = e.Key // any other generator may publish that it is lost, and that it is back
	}
	switch body := e.Body.(type) {
	case events.Recovered:
		kind, _ := strings.CutSuffix(e.Type, "recovered")
		delete(s.open, episode{node, kind + body.Episode, e.Key})
		return
	case events.Node:
		maps.DeleteFunc(s.open, func(about episode, alert events.Event) bool {
			return about.node == node && endedBy(e.Type, about.what) &&
				(body.Started.IsZero() || alert.Time.Before(body.Started) || e.Type != "leaf.node.started") ||
				alert.Type == "leaf.node.lost" && alert.Source == e.Source // it does not know any more that another one is lost
		})
	case events.Worker:
		maps.DeleteFunc(s.open, func(about episode, _ events.Event) bool {
			return about.node == node && endedBy(e.Type, about.what)
		})
	}
	if e.Severity == "alert" && hasEnd(e.Type) {
		s.open[episode{node, e.Type, e.Key}] = e
	}
}

// endedBy reports whether an event of a generator also ends its earlier alerts of a type.
func endedBy(event, alert string) bool {
	of := func(kinds ...string) bool {
		return slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(alert, k) })
	}
	switch event {
	case "leaf.node.started":
		return of("leaf.segment.", "leaf.records.", "leaf.registry.", "leaf.nats.degraded", "leaf.node.stale",
			"leaf.node.lost")
	case "leaf.node.stopped":
		return true
	case "leaf.worker.acquired":
		return of("leaf.clock.", "leaf.worker.lost", "leaf.worker.expiring")
	}
	return false
}

// forgetNode drops the alerts of a generator.
func (s *episodes) forgetNode(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.open, func(about episode, _ events.Event) bool { return about.node == node })
}

// hasEnd reports whether the end of all faults ends alerts of a type.
func hasEnd(alert string) bool {
	return !slices.Contains([]string{
		"leaf.worker.ending",                                   // it lasts until the layout of snowflakes changes
		"leaf.segment.ending",                                  // until an operator raises the limit
		"leaf.tag.shadowed",                                    // until an operator removes the row
		"leaf.disk.low", "leaf.replicas.few", "leaf.clock.off", // of this machine, or until an operator acts
	}, alert)
}

// lasting are the alerts that should be over. One about a generator that does not run may last until its reservation
// is over.
func (s *episodes) lasting(now time.Time, runs func(node string) bool) (found []events.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.open {
		lost, ok := e.Body.(events.Lost)
		if !ok || runs(e.Key) || !now.Before(time.UnixMilli(lost.UntilMS)) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(x, y events.Event) int { return cmp.Or(x.Time.Compare(y.Time), cmp.Compare(x.ID, y.ID)) })
	return found
}

// follow reads alerts and their ends from the stream, and begins again when the stream was lost.
func (s *episodes) follow(w *world) {
	began := time.Now()
	for ; w.ctx.Err() == nil; w.pause(time.Second) {
		for e, err := range events.Follow(w.ctx, w.js, events.Since(began)) {
			if err == nil {
				s.add(e)
			}
		}
	}
}

// alertsEnd demands that all alerts end after the last fault: by their events, and in the findings of each generator.
func (w *world) alertsEnd() {
	var check, tag, text string
	if !w.await(alertsEndWithin, time.Second, func() bool {
		check, tag, text = w.lastingAlert()
		return text == ""
	}) {
		w.violated(check, tag, fmt.Sprintf("%v after the last fault, %s", alertsEndWithin, text))
	}
}

// lastingAlert is an alert that should be over; text is empty if there is none. The check is "alert", or "finding" if
// only a generator's state has it.
func (w *world) lastingAlert() (check, tag, text string) {
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	states, err := w.admin.States(ctx)
	if err != nil {
		return "alert", "", "nobody answers: " + err.Error()
	}
	runs := func(node string) bool {
		return slices.ContainsFunc(states, func(s admin.State) bool { return s.Node == node })
	}
	for _, e := range w.episodes.lasting(time.Now(), runs) {
		if e.Time.Before(time.Now()) || !w.cfg.leavesOut("clock-ahead-alert") {
			return "alert", tagOf(e.Type, e.Key), fmt.Sprintf("%s of %s, published by %s at %s, has no end in the stream: %s",
				e.Type, e.Key, e.Source, e.Time.Format(clock), e.Data)
		}
	}
	for _, c := range admin.Causes(states) {
		for _, f := range c.Findings {
			lost := c.Kind == "node.lost" && !slices.ContainsFunc(f.Keys, runs)
			if hasEnd("leaf."+c.Kind) && !lost {
				return "finding", tagOf("leaf."+c.Kind, strings.Join(f.Keys, " ")),
					fmt.Sprintf("%s finds since %s: %s of %v: %s", f.Node, f.Since.Format(clock), c.Kind, f.Keys, f.Message)
			}
		}
	}
	return "", "", ""
}

// tagOf is the tag of an alert; empty: it is about no tag.
func tagOf(what, key string) string {
	if strings.HasPrefix(what, "leaf.segment.") || strings.HasPrefix(what, "leaf.tag.") {
		return key
	}
	return ""
}
