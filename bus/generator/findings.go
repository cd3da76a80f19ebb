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
	// maxOpen is how many episodes of tags are kept: each failing tag has up to three.
	maxOpen = 10_000
	// maxFindings and maxKeys keep the state small.
	maxFindings, maxKeys = 12, 3
)

// findings are what this generator knows to be wrong, in episodes. Each alert is published here: it begins an episode,
// and the event of its end ends that. What is wrong at this generator without an event is looked at by alerts.
//
//	publish      an event of any part, which may begin or end an episode
//	begin, end   what alerts sees
//	keep         what alerts sees that another generator has ended
//	list         for the state
//
// Its methods are safe for concurrent use. They call nothing under the lock.
type findings struct {
	node string
	send func(*nats.Msg) // queues an event

	mu       sync.Mutex
	episodes map[about]episode
}

// about is what an episode is about. key is a tag, worker or node.
type about struct{ kind, key string }

// episode is a time in which something is wrong.
type episode struct {
	about
	since    time.Time
	severity admin.Severity
	text     string
}

func newFindings(node string, send func(*nats.Msg)) *findings {
	return &findings{node: node, send: send, episodes: make(map[about]episode)}
}

// publish publishes an event. An alert begins an episode.
func (f *findings) publish(kind, key string, body any) {
	if over, ok := body.(events.Recovered); ok {
		group, _, _ := strings.Cut(kind, ".")
		f.end(group+"."+over.Episode, key)
	} else if outbox.IsAlert(kind) {
		f.begin(kind, key, time.Now(), body)
	}
	f.send(outbox.NewEvent(kind, key, f.node, body))
}

// begin begins an episode, or changes what it says.
func (f *findings) begin(kind, key string, since time.Time, body any) {
	severity, text := describe(kind, body)
	f.mu.Lock()
	defer f.mu.Unlock()
	at := about{kind, key}
	was, ok := f.episodes[at]
	switch {
	case ok:
		since = was.since
	case at.ofTag() && len(f.episodes) >= maxOpen:
		return
	}
	f.episodes[at] = episode{at, since, severity, text}
}

// end ends an episode.
func (f *findings) end(kind, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.episodes, about{kind, key})
}

// keep ends the episodes of a kind that do not last any more, by their keys.
func (f *findings) keep(kind string, lasts func(key string) bool) {
	f.mu.Lock()
	var keys []string
	for at := range f.episodes {
		if at.kind == kind {
			keys = append(keys, at.key)
		}
	}
	f.mu.Unlock()
	for _, key := range keys {
		if !lasts(key) {
			f.end(kind, key)
		}
	}
}

// list returns what is wrong, the worst first. lasts is after how many seconds the first failing tag has no IDs. count
// is how many generators are lost, and lost are the latest of them.
func (f *findings) list(lasts float64, count int, lost []admin.LostNode) []admin.Finding {
	found := []admin.Finding{}
	for kind, of := range f.causes() {
		found = append(found, newFinding(kind, of, f.node, lasts))
	}
	if count > 0 {
		found = append(found, lostFinding(count, lost))
	}
	slices.SortFunc(found, admin.Finding.Compare)
	return found[:min(len(found), maxFindings)]
}

// causes groups the episodes by the kind of their cause.
func (f *findings) causes() map[string][]episode {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string][]episode)
	for at, e := range f.episodes {
		cause := f.causeLocked(at)
		all[cause] = append(all[cause], e)
	}
	return all
}

// hasLocked reports whether something is wrong.
func (f *findings) hasLocked(kind, key string) bool {
	_, ok := f.episodes[about{kind, key}]
	return ok
}

// causeLocked returns the kind of the finding that an episode belongs to: a store that is away makes the refills of
// many tags fail, and starves those that run out of IDs.
func (f *findings) causeLocked(at about) string {
	if at.kind != failedKind && (at.kind != starvedKind || !f.hasLocked(failedKind, at.key)) {
		return at.kind
	}
	switch {
	case f.hasLocked("tag.damaged", at.key):
		return "tag.damaged"
	case f.hasLocked("database.unavailable", f.node):
		return "database.unavailable"
	case f.hasLocked("records.unavailable", f.node):
		return "records.unavailable"
	}
	return failedKind
}
