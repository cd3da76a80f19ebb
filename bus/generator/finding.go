package generator

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/snowflake"
)

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

// newFinding makes one finding of the episodes of one cause. The first one of the cause's own kind says what is wrong.
// The keys are the tags, workers or nodes that they are about, not this generator itself. lasts is after how many
// seconds the first failing tag has no IDs.
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
