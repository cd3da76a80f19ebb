package gateway

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/snowflake"
)

// maxMembers is how many alerts of one cause are shown, and how many that ended.
const maxMembers = 50

// The types of alerts that several causes share.
const (
	typeRefillFailed = "leaf.segment.refill_failed"
	typeStarved      = "leaf.segment.starved"
)

// The harm of a cause, the worst first. Those that end are ordered by when they do.
const (
	harmRefused = "refused" // callers are refused
	harmEnds    = "ends"    // callers are served for some time
	harmReduced = "reduced" // callers are served, by less than an operator wants
	harmNone    = "none"    // nothing is wrong for callers, but an operator should know
)

var harms = []string{harmRefused, harmEnds, harmReduced, harmNone}

// causeView is one failure, and the alerts that it raised: one dead database raises alerts of each tag at each
// generator.
type causeView struct {
	// Kind is mysql, jetstream, damaged or locked for refills that fail, and the type of the alerts otherwise.
	Kind  string    `json:"kind"`
	Gone  bool      `json:"gone,omitempty"` // its generators do not answer
	Harm  string    `json:"harm"`
	Since time.Time `json:"since"`
	// LastsS is after how many seconds the first callers are refused; nil: that is not known, or they are.
	LastsS *float64 `json:"lasts_s,omitempty"`
	Types  []string `json:"types"` // of its alerts, the worst first
	Nodes  []string `json:"nodes"`
	Keys   int      `json:"keys"`  // how many tags, workers or generators its alerts are about
	Dry    int      `json:"dry"`   // how many tags refuse requests, because a generator has no IDs of them
	Count  int      `json:"count"` // its alerts
	// Alerts are the first of them: those of refused callers first, then the newest.
	Alerts []notice `json:"alerts"`
}

// causesOf groups the alerts that last. states are those of the generators that answer.
func causesOf(lasting []notice, states []admin.State, now time.Time) []causeView {
	type about struct {
		kind string
		gone bool
	}
	failing := make(map[episode]string) // the kind of cause, by tag and generator
	for _, n := range lasting {
		if n.Type == typeRefillFailed {
			failing[episode{n.Node, n.Key}] = storeOf(n)
		}
	}
	members := make(map[about][]notice)
	for _, n := range lasting {
		at := about{n.Type, n.Gone}
		switch n.Type {
		case typeRefillFailed, typeStarved:
			at.kind = cmp.Or(failing[episode{n.Node, n.Key}], n.Type)
		case "leaf.records.unavailable":
			at.kind = "jetstream"
		}
		members[at] = append(members[at], n)
	}
	causes := make([]causeView, 0, len(members))
	for at, alerts := range members {
		c := newCause(at.kind, alerts, soonest(states), now)
		c.Gone = at.gone
		causes = append(causes, c)
	}
	slices.SortFunc(causes, causeView.compare)
	return causes
}

// group sets what the dashboard shows of the alerts: the causes of those that last, and the latest that ended.
func (v *feedView) group(states []admin.State, now time.Time) {
	lasting := len(v.Alerts)
	if i := slices.IndexFunc(v.Alerts, func(n notice) bool { return !n.Over.IsZero() }); i >= 0 {
		lasting = i // the ended come last
	}
	v.Causes = causesOf(v.Alerts[:lasting], states, now)
	past := v.Alerts[lasting:]
	v.Ended, v.Past = len(past), past[:min(len(past), maxMembers)]
}

// storeOf is what fails when a refill does. The errors of MySQL name it, and all others are JetStream's: the records
// are there.
func storeOf(n notice) string {
	body, _ := n.body.(events.RefillFailed)
	why := strings.ReplaceAll(body.Error, body.Tag, "") // the tag may have any name
	switch {
	case strings.HasPrefix(why, allocator.ErrDamaged.Error()):
		return "damaged"
	case strings.HasPrefix(why, allocator.ErrLocked.Error()):
		return "locked"
	case strings.Contains(why, "MySQL"), strings.Contains(why, "database"), strings.Contains(why, "table "):
		return "mysql"
	}
	return "jetstream"
}

func newCause(kind string, alerts []notice, soonest float64, now time.Time) causeView {
	slices.SortFunc(alerts, func(x, y notice) int {
		return cmp.Or(cmp.Compare(slices.Index(harms, x.harm()), slices.Index(harms, y.harm())), y.Time.Compare(x.Time),
			cmp.Compare(x.ID, y.ID))
	})
	c := causeView{Kind: kind, Harm: alerts[0].harm(), Since: alerts[0].Time, Count: len(alerts),
		Alerts: alerts[:min(len(alerts), maxMembers)]}
	keys, dry := make(map[string]bool), make(map[string]bool)
	lasts := math.Inf(1)
	for _, n := range alerts {
		if !strings.HasPrefix(n.Type, "leaf.records.") { // those are about their generator
			keys[n.Key] = true
		}
		if n.Type == typeStarved {
			dry[n.Key] = true
		}
		if !slices.Contains(c.Nodes, n.Node) {
			c.Nodes = append(c.Nodes, n.Node)
		}
		if !slices.Contains(c.Types, n.Type) {
			c.Types = append(c.Types, n.Type)
		}
		if n.Time.Before(c.Since) {
			c.Since = n.Time
		}
		if body, ok := n.body.(events.Worker); ok {
			lasts = min(lasts, max(0, time.UnixMilli(body.ReservedUntilMS).Sub(now).Seconds()))
		} else {
			lasts = min(lasts, soonest)
		}
	}
	slices.Sort(c.Nodes)
	c.Keys, c.Dry = len(keys), len(dry)
	if c.Harm == harmEnds && !math.IsInf(lasts, 1) {
		c.LastsS = &lasts
	}
	return c
}

// harm is what callers notice of an alert.
func (n notice) harm() string {
	switch body := n.body.(type) {
	case events.Starved:
		return harmRefused
	case events.TagProblem:
		if n.Type == "leaf.tag.damaged" {
			return harmEnds
		}
	case events.ClockBackwards:
		if body.Action == snowflake.Refused {
			return harmRefused
		}
		return harmEnds
	case events.RefillFailed:
		return harmEnds
	case events.Worker:
		if n.Type == "leaf.worker.expiring" {
			return harmEnds
		}
		return harmReduced
	case events.Lost, events.NATSDegraded, events.Stale, events.ClockSkewed, events.RecordsUnavailable:
		return harmReduced
	}
	return harmNone
}

// soonest is after how many seconds the first generator has no IDs of a tag whose refills fail.
func soonest(states []admin.State) float64 {
	lasts := math.Inf(1)
	for i := range states { // by index: states are large
		if s := states[i].FailingLasts; s != nil {
			lasts = min(lasts, *s)
		}
	}
	return lasts
}

// compare orders causes by urgency, the most urgent first. Those of generators that are gone come last.
func (c causeView) compare(other causeView) int {
	ends := func(c causeView) float64 {
		if c.LastsS == nil {
			return math.Inf(1)
		}
		return *c.LastsS
	}
	gone := func(c causeView) int {
		if c.Gone {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(gone(c), gone(other)),
		cmp.Compare(slices.Index(harms, c.Harm), slices.Index(harms, other.Harm)),
		cmp.Compare(ends(c), ends(other)), other.Since.Compare(c.Since), cmp.Compare(c.Kind, other.Kind))
}
