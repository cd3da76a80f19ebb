package audit

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
)

// Source is where an audit reads. [kvstore.AuditSource] returns one.
type Source struct {
	JS jetstream.JetStream
	// Records calls f with the record of a tag, or with those of all tags if tag is "". It reads at
	// least what was written before it was called, also if a replica of the bucket lags behind.
	Records func(ctx context.Context, tag string, f func(Record)) error
	// Workers and States are for audits of all tags, and for traces of snowflakes.
	Workers func(context.Context, admin.WorkersRequest) (admin.WorkersPage, error)
	States  func(context.Context) ([]admin.State, error)
	// Reveal is for IDs of opaque tags: it needs the right to use leaf.admin.tags.reveal.
	Reveal func(ctx context.Context, tag string, ids ...bus.ID) ([]bus.ID, error)

	lag time.Duration // of tests; 0: replicaLag
}

// Options say what to audit.
type Options struct {
	Tags []string // only these; empty: all tags, and the workers
	// Taken are IDs that callers got; nil: none. Their tags are audited too.
	Taken *Taken
	// Progress is called often, with the name of what is read and how much of it is done.
	Progress func(what string, done, total uint64)
}

// auditor is an audit that runs.
type auditor struct {
	Source
	Options
	report Report
	tags   map[string]*tagTrail
}

// Run audits. It may run while generators claim. Its errors are those of reading: contradictions
// are in the report.
func Run(ctx context.Context, from Source, o Options) (*Report, error) {
	a := &auditor{Source: from, Options: o, tags: make(map[string]*tagTrail)}
	a.report.Contradictions = []Contradiction{}
	if a.Progress == nil {
		a.Progress = func(string, uint64, uint64) {}
	}
	names, err := a.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names { // all events before the first record
		if err := a.readEvents(ctx, name); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		err := a.Records(ctx, name, func(r Record) {
			if name != "" || !r.Deleted || a.tags[r.Tag] != nil { // a deleted tag that no event names is not listed
				a.tag(r.Tag).record = r
			}
		})
		if err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.tags)) {
		audit := a.tags[name].audit(name)
		a.report.Tags = append(a.report.Tags, audit)
		a.report.Contradictions = append(a.report.Contradictions, audit.Contradictions...)
		a.Progress("tags", uint64(len(a.report.Tags)), uint64(len(a.tags)))
	}
	if len(o.Tags) == 0 && a.Source.Workers != nil {
		if err := a.readWorkers(ctx); err != nil {
			return nil, err
		}
	}
	if o.Taken != nil {
		err = a.compareTaken(ctx)
	}
	return &a.report, err
}

// names returns the tags to read, each once; only "" for all. Those of Taken are audited even if
// nothing is known of them.
func (a *auditor) names() ([]string, error) {
	names := slices.Clone(a.Tags)
	if a.Taken != nil {
		names = append(names, a.Taken.names()...)
	}
	for _, name := range names {
		if err := idspace.CheckTag(name); err != nil { // it might be a pattern of NATS
			return nil, err
		}
		a.tag(name)
	}
	if len(a.Tags) == 0 {
		return []string{""}, nil
	}
	return slices.Compact(slices.Sorted(slices.Values(names))), nil
}

func (a *auditor) tag(name string) *tagTrail {
	t := a.tags[name]
	if t == nil {
		t = &tagTrail{}
		a.tags[name] = t
	}
	return t
}

// readEvents reads the refill events of a tag, or of all tags.
func (a *auditor) readEvents(ctx context.Context, tag string) error {
	read := uint64(0)
	return readClaims(ctx, a.JS, tag, func(tag string, c claim, problem error, left uint64) {
		if read++; read%1000 == 0 {
			a.Progress("events", read, read+left)
		}
		t := a.tag(tag)
		if problem != nil {
			t.damaged = append(t.damaged, damaged(tag, c.message, problem))
			return
		}
		t.claims = append(t.claims, c)
		if a.report.Events++; a.report.Events == 1 {
			a.report.Since = c.time()
		}
	})
}
