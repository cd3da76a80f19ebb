package generator

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/outbox"
)

const (
	// maxOpen is how many episodes are kept: each failing tag has up to three.
	maxOpen = 10_000
	// maxFindings and maxKeys keep the state small.
	maxFindings, maxKeys = 12, 3
)

// findings are what this generator knows to be wrong. Each alert is published here: it opens a finding, and the event
// of its end closes that. What is wrong without an alert is opened and closed by alerts.
//
//	publish     an event of any part, which may open or close a finding
//	set, unset  what alerts sees
//	list        for the state
//
// Its methods are safe for concurrent use. They call nothing under the lock.
type findings struct {
	node string
	send func(*nats.Msg) // queues an event

	mu   sync.Mutex
	open map[about]opened
}

// about is what an episode is about. key is a tag, worker or node.
type about struct{ kind, key string }

type opened struct {
	since    time.Time
	severity admin.Severity
	text     string
	body     any // of the alert; nil: there is none
}

func newFindings(node string, send func(*nats.Msg)) *findings {
	return &findings{node: node, send: send, open: make(map[about]opened)}
}

// publish publishes an event. An alert opens a finding, and its end closes it.
func (f *findings) publish(kind, key string, body any) {
	if over, ok := body.(events.Recovered); ok {
		group, _, _ := strings.Cut(kind, ".")
		f.unset(group+"."+over.Episode, key)
	} else if outbox.IsAlert(kind) {
		f.set(time.Now(), kind, key, body)
	}
	f.send(outbox.NewEvent(kind, key, f.node, body))
}

// set opens a finding, or changes what it says. body is that of an alert, or an error.
func (f *findings) set(at time.Time, kind, key string, body any) {
	severity, text := describe(kind, body)
	f.mu.Lock()
	defer f.mu.Unlock()
	since := at
	if was, ok := f.open[about{kind, key}]; ok {
		since = was.since
		if at.Before(since) {
			since = at
		}
	} else if len(f.open) >= maxOpen {
		return
	}
	f.open[about{kind, key}] = opened{since, severity, text, body}
}

// has reports whether a finding is open.
func (f *findings) has(kind, key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.open[about{kind, key}]
	return ok
}

// unset closes a finding.
func (f *findings) unset(kind, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, about{kind, key})
}

// ending returns the tags with the finding segment.ending, and what it says of each.
func (f *findings) ending() map[string]events.Ending {
	f.mu.Lock()
	defer f.mu.Unlock()
	tags := make(map[string]events.Ending)
	for at, o := range f.open {
		if body, ok := o.body.(events.Ending); ok {
			tags[at.key] = body
		}
	}
	return tags
}

// list returns what is wrong, the worst first. lasts is after how many seconds the first failing tag has no IDs. count
// is how many generators are lost, and lost are the latest of them.
func (f *findings) list(lasts float64, count int, lost []admin.LostNode) []admin.Finding {
	bundles := f.bundles()
	found := make([]admin.Finding, 0, len(bundles))
	for kind, b := range bundles {
		found = append(found, b.finding(kind, lasts))
	}
	if count > 0 {
		found = append(found, lostFinding(count, lost))
	}
	slices.SortFunc(found, admin.Finding.Compare)
	return found[:min(len(found), maxFindings)]
}

// bundles groups the open episodes by their cause.
func (f *findings) bundles() map[string]*bundle {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]*bundle)
	for at, o := range f.open {
		kind := f.causeLocked(at)
		if all[kind] == nil {
			all[kind] = &bundle{opened: o, dry: make(map[string]bool)}
		}
		all[kind].add(at, o, at.kind == kind, f.node)
	}
	return all
}

// causeLocked returns the kind of the finding that an episode belongs to: a store that is away makes the refills of
// many tags fail, and starves those that run out of IDs.
func (f *findings) causeLocked(at about) string {
	if at.kind == starvedKind {
		if _, ok := f.open[about{failedKind, at.key}]; !ok {
			return at.kind
		}
		at.kind = failedKind
	}
	if at.kind != failedKind {
		return at.kind
	}
	for _, cause := range []about{{"tag.damaged", at.key}, {"database.unavailable", f.node},
		{"records.unavailable", f.node}} {
		if _, ok := f.open[cause]; ok {
			return cause.kind
		}
	}
	return at.kind
}
