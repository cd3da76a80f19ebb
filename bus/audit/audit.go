package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// claimsAtOnce is how many tags one request names.
	claimsAtOnce = 250
	// mostDoubts is how many tags may contradict themselves in an audit of all tags before it only names the tags. Up to
	// then it reads the events of each one again, to name the claims.
	mostDoubts = 100
	// replicaLag is how long an audit waits before it reads suspicious records again.
	replicaLag = time.Second
)

// Source is where an audit reads. [FromClient] returns one.
type Source struct {
	JS     jetstream.JetStream
	Claims func(context.Context, admin.ClaimsRequest) (admin.ClaimsPage, error)
	// Workers and States are for audits of all tags.
	Workers func(context.Context, admin.WorkersRequest) (admin.WorkersPage, error)
	States  func(context.Context) ([]admin.State, error)
	// Reveal is for IDs of opaque tags.
	Reveal func(context.Context, admin.RevealRequest) (admin.Revealed, error)

	lag, stall time.Duration // of tests; 0: replicaLag and readStall
}

// Options say what to audit.
type Options struct {
	Tags []string // only these; empty: all tags, and the workers
	// Taken are IDs that callers got; nil: none. Their tags are audited too.
	Taken           *Taken
	TakenSnowflakes *Runs // snowflakes that callers got; nil: none
	// Progress is called often, with the name of what is read and how much of it is done.
	Progress func(what string, done, total uint64)
}

// Report is what an audit found.
type Report struct {
	// Events is how many events were read, Since when the oldest of them was published.
	Events  int64         `json:"events"`
	Since   time.Time     `json:"since,omitzero"`
	Tags    []TagAudit    `json:"tags"`
	Workers []WorkerAudit `json:"workers,omitempty"`
	Taken   *TakenReport  `json:"taken,omitempty"`
	// TakenSnowflakes says what became of the snowflakes that callers got. Unreported are those of which it is not
	// recorded who held the worker at their time.
	TakenSnowflakes *TakenReport `json:"taken_snowflakes,omitempty"`
	// Contradictions are those of tags, workers and what was taken, together.
	Contradictions []Contradiction `json:"contradictions"`
}

// auditor is an audit that runs.
type auditor struct {
	Source
	Options
	report  Report
	tags    map[string]*tagTrail
	workers map[int64]*workerTrail
	nodes   map[string]*node // the generators
	last    uint64           // highest sequence of an event that was read
	// What the registry says.
	records     map[int64]admin.Worker
	layout      snowflake.Layout
	everyRecord bool // the registry has the records of all workers
}

// Run audits. It changes nothing, and may run while generators claim. Its errors are those of reading: contradictions
// are in the report.
func Run(ctx context.Context, from Source, o Options) (*Report, error) {
	a := &auditor{Source: from, Options: o, report: Report{Contradictions: []Contradiction{}},
		tags: make(map[string]*tagTrail), nodes: make(map[string]*node)}
	if a.Progress == nil {
		a.Progress = func(string, uint64, uint64) {}
	}
	if err := a.choose(); err != nil {
		return nil, err
	}
	if o.Taken != nil {
		if err := a.revealTaken(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.readEvents(ctx); err != nil {
		return nil, err
	}
	if err := a.readClaims(ctx); err != nil {
		return nil, err
	}
	if a.Source.Workers != nil && (len(o.Tags) == 0 || o.TakenSnowflakes != nil) {
		if err := a.readWorkers(ctx); err != nil {
			return nil, err
		}
	}
	if o.Taken != nil {
		a.compareTaken()
	}
	if o.TakenSnowflakes != nil {
		if err := a.checkSnowflakes(ctx); err != nil {
			return nil, err
		}
	}
	return &a.report, nil
}

// choose adds the tags of Taken to those that are audited, and drops repeated names.
func (a *auditor) choose() error {
	all := len(a.Tags) == 0
	if a.Taken != nil {
		for _, tag := range a.Taken.names() {
			a.tag(tag)
			if !all {
				a.Tags = append(slices.Clip(a.Tags), tag)
			}
		}
	}
	for _, tag := range a.Tags {
		if err := allocator.CheckTag(tag); err != nil { // it might be a pattern of NATS
			return err
		}
	}
	a.Tags = slices.Compact(slices.Sorted(slices.Values(a.Tags)))
	return nil
}

// readClaims reads how far the tags are claimed, and compares that with the events.
func (a *auditor) readClaims(ctx context.Context) error {
	known := make(map[string]bool)
	suspects := make(map[string][]bus.Range)
	note := func(page admin.ClaimsPage) {
		for _, c := range page.Claims {
			known[c.Tag] = true
			audit, doubts := a.tag(c.Tag).audit(page.Store, c)
			if len(doubts)+len(audit.Contradictions) > 0 || a.Taken.above(c.Tag, int64(c.End)) {
				suspects[c.Tag] = doubts
				continue
			}
			a.report.Tags = append(a.report.Tags, audit)
		}
		a.Progress("tags", uint64(len(known)), uint64(max(len(known), len(a.tags))))
	}
	names := a.Tags
	if len(names) == 0 {
		for req := (admin.ClaimsRequest{}); ; {
			page, err := a.Claims(ctx, req)
			if err != nil {
				return err
			}
			note(page)
			if req.After = page.Next; page.Next == "" {
				break
			}
		}
		for name := range a.tags { // deleted ones, and those of which IDs were taken
			if !known[name] {
				names = append(names, name)
			}
		}
	}
	if err := a.readNamed(ctx, names, note); err != nil {
		return err
	}
	if err := a.examine(ctx, suspects); err != nil {
		return err
	}
	slices.SortFunc(a.report.Tags, func(x, y TagAudit) int { return strings.Compare(x.Tag, y.Tag) })
	return nil
}

// readNamed reads how far these tags are claimed.
func (a *auditor) readNamed(ctx context.Context, names []string, f func(admin.ClaimsPage)) error {
	for len(names) > 0 {
		page, err := a.Claims(ctx, admin.ClaimsRequest{Tags: names[:min(len(names), claimsAtOnce)]})
		if err != nil {
			return err
		}
		if n := len(page.Claims); n == 0 || n > len(names) {
			return fmt.Errorf("%d tags were asked for, and the answer has %d", len(names), n)
		}
		f(page)
		names = names[len(page.Claims):]
	}
	return nil
}

// examine reads the records of suspects again, after a while: the first answer may have come from a replica that lagged
// behind. Then it names what is still contradictory. suspects has the doubtful IDs of each tag. They stay doubtful: a
// record that has moved on since must not hide an event that was above it.
func (a *auditor) examine(ctx context.Context, suspects map[string][]bus.Range) error {
	if len(suspects) == 0 {
		return nil
	}
	if err := a.awaitReplicas(ctx); err != nil {
		return err
	}
	var audits []TagAudit
	again := make(map[string]bool) // tags that are doubtful by the second reading too
	err := a.readNamed(ctx, slices.Sorted(maps.Keys(suspects)), func(page admin.ClaimsPage) {
		for _, c := range page.Claims {
			audit, doubts := a.tag(c.Tag).audit(page.Store, c)
			audits = append(audits, audit)
			suspects[c.Tag] = append(suspects[c.Tag], doubts...)
			if len(doubts) > 0 {
				again[c.Tag] = true
			}
		}
	})
	if err != nil {
		return err
	}
	for _, audit := range audits {
		if ids := suspects[audit.Tag]; again[audit.Tag] && len(again) > mostDoubts && len(a.Tags) == 0 {
			kind := Overlap
			if audit.Problem == "" && slices.ContainsFunc(ids, func(r bus.Range) bool { return r.Last >= int64(audit.End) }) {
				kind = Unclaimed // of the two it is the worse: the IDs may be handed out again
			}
			audit.Contradictions = append(audit.Contradictions, Contradiction{
				Kind: kind, Tag: audit.Tag, First: bus.ID(ids[0].First), Last: bus.ID(ids[0].Last),
				Message: fmt.Sprintf("its events contradict each other or the record: `leaf audit %s` names them", audit.Tag)})
		} else if len(ids) > 0 {
			found, err := doubt(ctx, a.Source, audit.TagClaims, ids, a.last)
			if err != nil {
				return err
			}
			audit.Contradictions = append(audit.Contradictions, found...)
		}
		a.report.Tags = append(a.report.Tags, audit)
		a.report.Contradictions = append(a.report.Contradictions, audit.Contradictions...)
	}
	return nil
}

// awaitReplicas waits until a replica that lagged behind has the present records.
func (s Source) awaitReplicas(ctx context.Context) error {
	select {
	case <-time.After(cmp.Or(s.lag, replicaLag)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
