package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// auditTimeout bounds an audit of all tags, so that its answer comes before the server closes the connection.
	auditTimeout = time.Minute
	// maxQuestions is how many audits of one tag and traces are under way at a time; others wait.
	maxQuestions = 2
	// maxAudited is how many tags, and how many workers, the answer to an audit of all tags has, and
	// maxContradictions how many contradictions.
	maxAudited        = 200
	maxContradictions = 500
)

// tagRow and workerRow are rows of an audit of all tags. They have the number of their contradictions.
type (
	tagRow struct {
		bus.TagAudit
		Contradictions int `json:"contradictions"`
	}
	workerRow struct {
		bus.Worker
		Contradictions int `json:"contradictions"`
	}
)

// auditView is the audit of all tags and workers.
type auditView struct {
	Events     int64     `json:"events"` // that the stream has
	Since      time.Time `json:"since,omitzero"`
	Tags       int       `json:"tags"`
	Workers    int       `json:"workers"`
	Found      int       `json:"found"` // contradictions
	Reported   int64     `json:"reported,string"`
	Lost       int64     `json:"lost,string"`
	Skipped    int64     `json:"skipped,string"`
	Unreported int64     `json:"unreported,string"`
	ElapsedMS  int64     `json:"elapsed_ms"`
	// The first of each. Tags and workers with contradictions come before the others.
	Contradictions []bus.Contradiction `json:"contradictions"`
	FirstTags      []tagRow            `json:"first_tags"`
	FirstWorkers   []workerRow         `json:"first_workers"`
}

// audit answers with the audit of one tag.
func (v *views) audit(ctx context.Context, r *http.Request) (any, error) {
	return v.c.AuditTag(ctx, r.FormValue("tag"))
}

// auditAll answers with the audit of all tags and workers. It ends when the server begins to stop.
func (v *views) auditAll(ctx context.Context, _ *http.Request) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.life, cancel)()
	begun := time.Now()
	report, err := audit.Run(ctx, audit.FromClient(v.c, v.js), audit.Options{})
	switch {
	case err == nil:
		return newAuditView(report, time.Since(begun)), nil
	case v.life.Err() != nil:
		return nil, &bus.Error{Code: http.StatusServiceUnavailable, Reason: bus.Draining, Message: "this generator stops: ask another one"}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, &bus.Error{Code: http.StatusGatewayTimeout, Reason: bus.TimedOut,
			Message: fmt.Sprintf("this audit takes longer than %v: audit one tag, or run `leaf audit`", auditTimeout)}
	}
	return nil, err
}

func newAuditView(report *audit.Report, elapsed time.Duration) auditView {
	v := auditView{
		Events: report.Events, Since: report.Since, Tags: len(report.Tags), Workers: len(report.Workers), Found: len(report.Contradictions),
		ElapsedMS: elapsed.Milliseconds(), Contradictions: first(report.Contradictions, maxContradictions),
		FirstTags: []tagRow{}, FirstWorkers: []workerRow{},
	}
	for _, t := range report.Tags {
		v.Reported, v.Lost = sum(v.Reported, t.Reported), sum(v.Lost, t.Lost)
		v.Skipped, v.Unreported = sum(v.Skipped, t.Skipped), sum(v.Unreported, t.Unreported)
	}
	slices.SortStableFunc(report.Tags, func(x, y bus.TagAudit) int { return byContradictions(x.Contradictions, y.Contradictions) })
	for _, t := range first(report.Tags, maxAudited) {
		v.FirstTags = append(v.FirstTags, tagRow{t, len(t.Contradictions)})
	}
	slices.SortStableFunc(report.Workers, func(x, y bus.WorkerAudit) int { return byContradictions(x.Contradictions, y.Contradictions) })
	for _, w := range first(report.Workers, maxAudited) {
		v.FirstWorkers = append(v.FirstWorkers, workerRow{w.Worker, len(w.Contradictions)})
	}
	return v
}

// byContradictions orders what has contradictions before what has none.
func byContradictions(x, y []bus.Contradiction) int {
	return cmp.Compare(min(len(y), 1), min(len(x), 1))
}

func first[T any](all []T, most int) []T { return all[:min(len(all), most)] }

// sum adds counts. It stops at the highest number.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// trace answers with the claims of an ID of a tag, or of a snowflake.
func (v *views) trace(ctx context.Context, r *http.Request) (any, error) {
	q := r.URL.Query()
	req := bus.TraceRequest{Tag: q.Get("tag")}
	name, number := "id", &req.ID
	switch snowflake := q.Has("snowflake"); {
	case snowflake && (q.Has("tag") || q.Has("id")), !snowflake && !q.Has("tag"):
		return nil, badRequest("name a tag and an id, or a snowflake: not both")
	case snowflake:
		name, number = "snowflake", &req.Snowflake
	}
	n, ok := wire.ParseID([]byte(strings.TrimSpace(q.Get(name))))
	if !ok {
		return nil, badRequest(fmt.Sprintf("%s is no ID: want a whole number from 1 to %d", name, int64(math.MaxInt64)))
	}
	*number = bus.ID(n)
	return v.c.Trace(ctx, req)
}
