package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// stated is a generator in a state.
type stated struct {
	fakeGenerator
	state admin.State
}

func (g *stated) State() admin.State { return g.state }

// metrics returns the lines of leaf's own metrics.
func metrics(t *testing.T, s *Server) []string {
	t.Helper()
	w := get(s, "/metrics")
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "leaf_") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	worker, offset, lasts := int64(7), int64(-1500), 12.5
	g := &stated{state: admin.State{
		Node: "n", Version: "v1", Worker: &worker, ReservedUntil: 61_000, Clock: admin.Clock{UnixMS: 1000, OffsetMS: &offset},
		Readiness: admin.Readiness{Missing: []string{"nats"}, Reasons: map[string]string{"nats": "away"}, Segment: true},
		Counts:    admin.Counts{Waiting: 3, Borrowed: 11, Overloads: 7, States: map[string]int{"ok": 5, "failing": 1}, Left: 12, EventsQueued: 4, EventsDropped: 2, StoreErrors: 9},
		Busiest: []admin.Buffer{{Tag: "a.b", Left: 8, Taken: 100, Step: 2000, Lasts: &lasts},
			{Tag: "invoice", Taken: 70, Order: idspace.OrderStrict}},
	}}
	s := serve(t, g)
	m := s.cfg.Metrics
	m.Answered(generator.Answer{Kind: generator.SegmentKind, Transport: generator.NATS, IDs: 5, Took: 3 * time.Microsecond})
	m.Answered(generator.Answer{Kind: generator.SegmentKind, Transport: generator.NATS, IDs: 2, Waited: true, Took: 2 * time.Second})
	m.Answered(generator.Answer{Kind: generator.SnowflakeKind, Transport: generator.HTTP, Reason: bus.NoWorkerID, Took: time.Microsecond})
	m.Answered(generator.Answer{Kind: generator.AdminKind, Transport: generator.NATS, Took: time.Millisecond})
	m.Allocated(allocator.Refilled{Cause: allocator.CausePrefetch, Range: bus.Range{First: 1, Last: 1000}, Elapsed: 40 * time.Millisecond})
	m.Allocated(allocator.Regressed{Action: allocator.Dropped})
	lines := metrics(t, s)
	for _, line := range []string{
		`leaf_requests_total{face="nats",kind="segment",outcome="ok",result="ok"} 2`,
		`leaf_requests_total{face="http",kind="snowflake",outcome="no_worker_id",result="failed"} 1`,
		`leaf_requests_total{face="http",kind="segment",outcome="ok",result="ok"} 0`,
		`leaf_requests_total{face="nats",kind="admin",outcome="ok",result="ok"} 1`,
		`leaf_ids_total{face="nats",kind="segment"} 7`,
		`leaf_waits_total{face="nats",kind="segment"} 1`,
		`leaf_request_duration_seconds_bucket{face="nats",kind="segment",le="5e-06"} 1`,
		`leaf_request_duration_seconds_bucket{face="nats",kind="segment",le="2.5"} 2`,
		`leaf_request_duration_seconds_count{face="http",kind="snowflake"} 1`,
		`leaf_refill_duration_seconds_bucket{cause="prefetch",le="0.05"} 1`,
		`leaf_refill_duration_seconds_bucket{cause="prefetch",le="0.025"} 0`,
		`leaf_reserved_ids_total{cause="prefetch"} 1000`,
		`leaf_store_regressions_total{action="dropped"} 1`, `leaf_store_regressions_total{action="advanced"} 0`,
		`leaf_ready 0`, `leaf_missing{what="nats"} 1`, `leaf_missing{what="bus"} 0`,
		`leaf_serving{kind="segment"} 1`, `leaf_serving{kind="snowflake"} 0`,
		`leaf_waiting_requests 3`, `leaf_borrowed_requests_total 11`, `leaf_overloads_total 7`, `leaf_tags{state="ok"} 5`, `leaf_tags{state="failing"} 1`, `leaf_buffered_ids 12`,
		`leaf_store_errors_total 9`, `leaf_clock_offset_seconds -1.5`, `leaf_worker_id 7`, `leaf_worker_reserved_seconds 60`,
		`leaf_events_queued 4`, `leaf_events_dropped_total 2`,
		`leaf_tag_buffered_ids{tag="a.b"} 8`, `leaf_tag_ids_total{tag="a.b"} 100`, `leaf_tag_ids_total{tag="invoice"} 70`, `leaf_tag_step_ids{tag="a.b"} 2000`,
		`leaf_tag_lasts_seconds{tag="a.b"} 12.5`,
		`leaf_requests_total{face="nats",kind="segment",outcome="paused",result="refused"} 0`, `leaf_requests_total{face="http",kind="segment",outcome="quota_exceeded",result="refused"} 0`,
	} {
		if !slices.Contains(lines, line) {
			t.Errorf("there is no %s", line)
		}
	}
	// A strict tag has no step and no IDs in memory. 0 would look like a tag that runs out of them.
	for _, line := range lines {
		if strings.Contains(line, `tag="invoice"`) && line != `leaf_tag_ids_total{tag="invoice"} 70` {
			t.Errorf("of a strict tag there is %s", line)
		}
	}
	// What is not there has no series, rather than one that says something else.
	g.state.Worker, g.state.Clock.OffsetMS = nil, nil
	for _, line := range metrics(t, serve(t, g)) {
		if strings.HasPrefix(line, "leaf_worker_") || strings.HasPrefix(line, "leaf_clock_") {
			t.Errorf("without a worker and other generators: %s", line)
		}
	}
}

// Writes of strict tags count as refills. A write that a peer makes counts there.
func TestMetricsOfStrictTags(t *testing.T) {
	t.Parallel()
	s := serve(t, &stated{})
	m := s.cfg.Metrics
	m.Allocated(allocator.Claimed{Range: bus.Range{First: 1, Last: 40}, Requests: 20, Elapsed: 2 * time.Millisecond})
	m.Allocated(allocator.Claimed{Range: bus.Range{First: 41, Last: 41}, Requests: 1, Conflicts: 3, Elapsed: 20 * time.Millisecond})
	m.Allocated(allocator.Claimed{Range: bus.Range{First: 42, Last: 46}, Requests: 5, PassedTo: "other", Elapsed: time.Second})
	lines := metrics(t, s)
	for _, line := range []string{
		`leaf_refill_duration_seconds_count{cause="strict"} 2`, `leaf_refill_duration_seconds_bucket{cause="strict",le="0.0025"} 1`,
		`leaf_reserved_ids_total{cause="strict"} 41`, `leaf_reserved_ids_total{cause="demand"} 0`,
	} {
		if !slices.Contains(lines, line) {
			t.Errorf("there is no %s", line)
		}
	}
}
