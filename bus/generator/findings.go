package generator

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/outbox"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// maxOpen is how many episodes of tags are kept: each failing tag has up to three.
	maxOpen = 10_000
	// maxFindings and maxKeys keep the state small.
	maxFindings, maxKeys = 12, 3
)

// findings are what this generator knows to be wrong, in episodes. Each alert is published here: it
// begins an episode, and the event of its end ends that. What is wrong at this generator without an
// event is looked at by alerts.
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

// list returns what is wrong, the worst first. lasts is after how many seconds the first failing
// tag has no IDs. count is how many generators are lost, and lost are the latest of them.
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

// causeLocked returns the kind of the finding that an episode belongs to: a store that is away
// makes the refills of many tags fail, and starves those that run out of IDs.
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

// maxText is how much a finding says, in bytes.
const maxText = 300

// The kinds of episodes of which one failure raises many.
const (
	failedKind  = "segment.refill_failed"
	starvedKind = "segment.starved"
)

// kinds has all kinds of findings: how bad each is, and what an operator should do.
var kinds = map[string]struct {
	severity admin.Severity
	do       string
}{
	starvedKind: {admin.Critical, "see what else is wrong: a store that is away, or requests that come faster " +
		"than refills; a larger step helps against these"},
	failedKind: {admin.Problem, "the text names what refuses the refill: fix it there. Leave the " +
		"generators running, because they have the IDs in memory"},
	"segment.regressed": {admin.Warning, "find out why the store went backwards: a restore, or a failover that " +
		"lost writes"},
	"segment.ending": {admin.Warning, "raise the limit with leaf tag set TAG --limit N, or use another tag"},
	"store.waiting": {admin.Critical, "bring back what the text names: until then this generator has no " +
		"IDs of tags"},
	"tag.damaged": {admin.Problem, "restore the record from a backup, or create the tag again with a max_id above all " +
		"its IDs: leaf tag add TAG --max-id N"},
	"tag.shadowed": {admin.Warning, "delete that row of leaf_alloc, or choose another name for it"},
	"database.unavailable": {admin.Problem, "bring the database back, or the way to it. Leave the generators running, " +
		"because they have the IDs in memory"},
	"records.unavailable": {admin.Problem, "do what the text says. Else start the NATS servers that are away, or, if " +
		"records are lost, restore them from a backup. Leave the generators running"},
	"registry.unavailable": {admin.Problem, "bring the registry of workers back. Snowflakes go on until the worker's " +
		"reservation ends"},
	"events.unavailable": {admin.Warning, "make room for the stream LEAF_EVENTS, or start the NATS servers that keep " +
		"it. No alert is stored until then"},
	"keys.lost": {admin.Critical, "create no opaque tag, restart no generator, and restore the bucket LEAF_KEYS from a " +
		"backup"},
	"nats.degraded": {admin.Problem, "start the NATS servers that are away, or make room on the disk of this one"},
	"nats.unheard": {admin.Critical, "see that the NATS server runs, that no firewall is between, and that the user of " +
		"the generators has its rights"},
	"replicas.few": {admin.Warning, "run at least three NATS servers with JetStream as one cluster, and give each " +
		"stream of Leafbus three replicas: nats stream edit NAME --replicas 3"},
	"disk.low": {admin.Problem, "make room on the disk of the data folder. A full disk stops all writes"},
	"folder.temporary": {admin.Warning, "keep the data folder on a volume that lasts, such as a PersistentVolume: " +
		"without it each restart is a new generator, and the last one counts as lost"},
	"clock.backwards": {admin.Problem, "set the clock right, slowly: check NTP on that machine"},
	"clock.skewed":    {admin.Problem, "check NTP on that machine. If its clock is right, it was wrong in the last run"},
	"clock.off":       {admin.Warning, "check NTP on that machine, and with two generators on the other one too"},
	"worker.missing":  {admin.Critical, "bring back what the text names: until then this generator has no snowflakes"},
	"worker.lost":     {admin.Problem, "find out what removed the record, or who else uses this registry"},
	"worker.expiring": {admin.Problem, "bring the registry of workers back before the reservation ends"},
	"worker.ending":   {admin.Warning, "plan a new installation with another layout or epoch: leaf layout"},
	"node.stale": {admin.Warning, "bring the store back, so that the generator can read which max_id " +
		"operators have set"},
	"node.lost": {admin.Problem, "start it again with its data folder. If it is gone for good: leaf nodes forget NODE, " +
		"and to free its worker leaf workers release N"},
}

// describe says how bad something is, and what it is. The body is that of an alert, or an error.
func describe(kind string, body any) (severity admin.Severity, text string) {
	severity = kinds[kind].severity
	switch b := body.(type) {
	case error:
		if text = b.Error(); kind == "node.stale" {
			text = "it was cut off, and does not know which max_id operators have set since: " + text
		}
	case events.RefillFailed:
		text = b.Error
	case events.TagProblem:
		text = b.Error
	case events.Starved:
		text = "memory has too few IDs, and no other generator has them"
	case events.Ending:
		text = fmt.Sprintf("80 %% of the IDs up to %d are reserved, and %d are left", b.Limit, b.Left)
	case events.Regressed:
		text = fmt.Sprintf("the store went backwards: it was at %d, and all IDs below %d are in use. It was raised, and "+
			"service goes on", b.Got, b.Seen)
		if b.Action == string(allocator.Dropped) {
			severity = admin.Critical
			text = fmt.Sprintf("two generators held one range: the IDs from %d to %d may come twice. Look for them in "+
				"your data", b.First, b.Last)
		}
	case events.ClockBackwards:
		text = fmt.Sprintf("its clock is %v behind its last snowflake, and requests wait", milliseconds(b.OffsetMS))
		if b.Action == string(snowflake.Refused) {
			severity = admin.Critical
			text = fmt.Sprintf("its clock is %v behind its last snowflake, and requests are refused",
				milliseconds(b.OffsetMS))
		}
	case events.ClockSkewed:
		than := "the clocks of the other generators"
		if b.RecordedMS > 0 {
			than = "the last time that it knew"
		}
		text = fmt.Sprintf("its clock differs by %v from %s",
			milliseconds(b.NowMS-cmp.Or(b.RecordedMS, b.PeersMS)).Abs(), than)
	case events.WorkerEnding:
		text = "the layout has no snowflakes from " + text3339(b.EndMS) + " on"
	case events.Worker:
		text = "the registry does not answer, and there are no snowflakes from " + text3339(b.ReservedUntilMS) + " on"
		if kind == "worker.lost" {
			text = "its record is gone or another generator's, so this generator takes another worker"
		}
	}
	return severity, strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

func text3339(ms int64) string { return utc(ms).Format(time.RFC3339) }

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// newFinding makes one finding of the episodes of one cause. The first one of the cause's own kind
// says what is wrong. The keys are the tags, workers or nodes that they are about, not this
// generator itself. lasts is after how many seconds the first failing tag has no IDs.
func newFinding(kind string, of []episode, node string, lasts float64) admin.Finding {
	first := slices.MinFunc(of, func(x, y episode) int {
		switch {
		case x.kind == y.kind:
			return x.since.Compare(y.since)
		case x.kind == kind:
			return -1
		}
		return 1
	})
	f := admin.Finding{
		Kind: kind, Severity: first.severity, Since: first.since.UTC(), Message: first.text, Do: kinds[kind].do}
	keys := make(map[string]bool) // true: a tag with too few IDs
	dry, failing := 0, false
	for _, e := range of {
		if e.severity.Worse(f.Severity) {
			f.Severity = e.severity
		}
		if e.key != node || e.ofTag() {
			keys[e.key] = keys[e.key] || e.kind == starvedKind
			failing = failing || e.kind == failedKind
		}
	}
	for _, is := range keys {
		if is {
			dry++
		}
	}
	f.Count, f.Keys = len(keys), slices.Sorted(maps.Keys(keys))[:min(len(keys), maxKeys)]
	if live := len(keys) - dry; failing {
		if dry > 0 {
			f.Message += fmt.Sprintf(". Tags with too few IDs, so that callers are refused: %d", dry)
		}
		if live > 0 {
			f.Message += fmt.Sprintf(". Tags that live on the IDs in memory: %d", live)
		}
		if live > 0 && dry == 0 && !math.IsInf(lasts, 1) {
			f.Message += fmt.Sprintf(", the first for %v", time.Duration(lasts)*time.Second)
		}
	}
	return f
}

// ofTag reports whether the key is a tag.
func (a about) ofTag() bool {
	return strings.HasPrefix(a.kind, "segment.") || strings.HasPrefix(a.kind, "tag.")
}

// lostFinding is about the lost generators; nodes are the latest of them.
func lostFinding(count int, nodes []admin.LostNode) admin.Finding {
	first := slices.MinFunc(nodes, func(x, y admin.LostNode) int { return cmp.Compare(x.LastHeardMS, y.LastHeardMS) })
	f := admin.Finding{Kind: "node.lost", Severity: kinds["node.lost"].severity, Since: utc(first.LastHeardMS),
		Message: "its heartbeats stopped, and it did not report that it ends", Do: kinds["node.lost"].do, Count: count}
	for _, n := range nodes[:min(len(nodes), maxKeys)] {
		f.Keys = append(f.Keys, n.Node)
	}
	return f
}
