package gateway

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// The buckets of durations, in seconds. Requests are answered from memory within
// microseconds, or wait for up to a minute. Refills take at least a write to a disk.
var (
	requestBuckets = []float64{
		1e-6, 2.5e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6,
		1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 60,
	}
	refillBuckets = []float64{
		100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10,
	}
)

// refusals are the reasons why requests for IDs are refused.
var refusals = []bus.Reason{
	bus.BadRequest, bus.BadTag, bus.Paused, bus.UnknownTag, bus.BatchTooLarge, bus.Overloaded, bus.QuotaExceeded,
	bus.Internal, bus.StoreUnavailable, bus.ClockBackwards, bus.NoWorkerID, bus.Draining, bus.TimedOut, bus.Exhausted,
	generator.Canceled,
}

// result says whether a refusal is the caller's mistake or an operator's will, or a failure of the
// installation.
func result(reason bus.Reason) string {
	switch reason {
	case bus.BadRequest, bus.BadTag, bus.UnknownTag, bus.Exists, bus.Conflict, bus.BatchTooLarge, bus.Paused,
		bus.QuotaExceeded:
		return "refused"
	}
	return "failed"
}

// Metrics are what a generator measures for Prometheus. It is the generator's
// [generator.Observer]. How many series there are does not depend on the number of tags: those
// of single tags are of the busiest ones.
type Metrics struct {
	registry    *prometheus.Registry
	requests    *prometheus.CounterVec
	answered    [2][3]answered // by transport and kind
	refills     *prometheus.HistogramVec
	reserved    *prometheus.CounterVec
	regressions *prometheus.CounterVec
}

// answered are the counters of answered requests. They are looked up once, because a lookup
// by labels takes longer than counting.
type answered struct {
	ok, ids, waits prometheus.Counter
	took           prometheus.Observer
}

// NewMetrics returns metrics whose counters are 0.
func NewMetrics() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	auto := promauto.With(m.registry)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	durations := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return auto.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	m.requests = counters("leaf_requests_total",
		"Requests that were answered, by outcome: ok, or the reason of the error. result is ok, refused (the caller's "+
			"mistake, or an operator's will) or failed.", "face", "kind", "result", "outcome")
	ids := counters("leaf_ids_total", "IDs that were handed out.", "face", "kind")
	waits := counters("leaf_waits_total",
		"Requests that had to wait, for a segment, for time, or for the write of a strict tag.", "face", "kind")
	took := durations("leaf_request_duration_seconds",
		"How long the generator took for a request, from its arrival to the answer.", requestBuckets, "face", "kind")
	m.reserved = counters("leaf_reserved_ids_total",
		"IDs that were reserved in the store, by the cause of the refill, or strict for IDs of strict tags.", "cause")
	m.refills = durations("leaf_refill_duration_seconds",
		"How long the store took to reserve a range, by cause, or strict for the write of a strict tag, conflicts included.",
		refillBuckets, "cause")
	m.regressions = counters("leaf_store_regressions_total",
		"Times that the store went backwards for a tag, by what was done: advanced, max_id was moved up; dropped, two "+
			"generators held one range, and IDs may come twice.", "action")

	// All series exist from the start: the first increase of a new series would not be seen.
	for transport := range m.answered {
		for kind := range m.answered[transport] {
			t, k := generator.Transport(transport).String(), generator.Kind(kind).String()
			if generator.Kind(kind) == generator.AdminKind {
				if generator.Transport(transport) == generator.NATS { // administration needs the bus
					m.answered[transport][kind] = answered{ok: m.requests.WithLabelValues(t, k, "ok", "ok"),
						took: took.WithLabelValues(t, k)}
				}
				continue
			}
			m.answered[transport][kind] = answered{m.requests.WithLabelValues(t, k, "ok", "ok"), ids.WithLabelValues(t, k),
				waits.WithLabelValues(t, k), took.WithLabelValues(t, k)}
			for _, reason := range refusals {
				m.requests.WithLabelValues(t, k, result(reason), string(reason))
			}
		}
	}
	for _, action := range []allocator.Action{allocator.Advanced, allocator.Dropped} {
		m.regressions.WithLabelValues(string(action))
	}
	for _, cause := range []allocator.Cause{
		allocator.CauseDemand, allocator.CausePrefetch, allocator.CauseBatch, idspace.OrderStrict} {
		m.refills.WithLabelValues(string(cause))
		m.reserved.WithLabelValues(string(cause))
	}
	return m
}

// Answered implements [generator.Observer].
func (m *Metrics) Answered(a generator.Answer) {
	counts := &m.answered[a.Transport][a.Kind]
	counts.took.Observe(a.Took.Seconds())
	if a.Waited {
		counts.waits.Inc()
	}
	if a.Reason != "" {
		m.requests.WithLabelValues(a.Transport.String(), a.Kind.String(), result(a.Reason), string(a.Reason)).Inc()
		return
	}
	counts.ok.Inc()
	if a.IDs > 0 {
		counts.ids.Add(float64(a.IDs))
	}
}

// Allocated implements [generator.Observer].
func (m *Metrics) Allocated(e allocator.Event) {
	switch e := e.(type) {
	case allocator.Refilled:
		m.refilled(e.Cause, e.Range, e.Elapsed)
	case allocator.Claimed:
		if e.PassedTo == "" { // a peer counts what it reserves
			m.refilled(idspace.OrderStrict, e.Range, e.Elapsed)
		}
	case allocator.Regressed:
		m.regressions.WithLabelValues(string(e.Action)).Inc()
	}
}

func (m *Metrics) refilled(cause allocator.Cause, r allocator.Range, took time.Duration) {
	m.refills.WithLabelValues(string(cause)).Observe(took.Seconds())
	m.reserved.WithLabelValues(string(cause)).Add(float64(r.Len()))
}

// handler serves the metrics, and with them the state of g. One generator has them.
func (m *Metrics) handler(g Generator) http.Handler {
	m.registry.MustRegister(stateCollector{newAnswers(stateKept,
		func(context.Context, struct{}) admin.State { return g.State() })})
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		Timeout:             viewTimeout,
	})
}

// missable is what may be missing. Each has its own series, so that none comes and goes.
var missable = []string{"bus", "nats", "store", "keys", "worker", "clock", "draining"}

// stateCollector makes metrics of the generator's state at the time of a scrape.
type stateCollector struct {
	state *answers[struct{}, admin.State]
}

// Describe implements [prometheus.Collector]. Without descriptions the registry does not
// demand all metrics at each scrape: some are absent at times.
func (c stateCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.state.get(context.Background(), struct{}{})
	out := stateMetrics(ch)
	out.add("build_info", "1, for the version that runs.", 1, "version", s.Version, "go_version", runtime.Version(),
		"node", s.Node)
	out.add("ready", "Whether all is there that the generator is configured with: 1, or 0 as /readyz has it.",
		truth(s.Ready))
	for _, what := range missable {
		_, missing := s.Reasons[what]
		out.add("missing", "Whether this is missing, as /readyz says: 1 or 0.", truth(missing), "what", what)
	}
	const serving = "Whether the generator can answer with IDs of this kind, possibly only from memory: 1 or 0."
	out.add("serving", serving, truth(s.Segment), "kind", generator.SegmentKind.String())
	out.add("serving", serving, truth(s.Snowflake), "kind", generator.SnowflakeKind.String())
	for _, f := range s.Findings {
		out.add("finding", "1 for each kind of what the generator finds to be wrong, as leaf doctor prints it; "+
			"absent: nothing of that kind.", 1, "kind", f.Kind, "severity", string(f.Severity))
	}
	out.add("lost_nodes", "Other generators that this one does not hear, and that did not report that they end.",
		float64(s.Counts.Lost))
	out.add("waiting_requests", "Requests that wait now, for a segment, for time, or for the write of a strict tag.",
		float64(s.Counts.Waiting))
	out.count("borrowed_requests_total",
		"Requests that were answered with IDs of another generator, because this one had too few.", s.Counts.Borrowed)
	out.count("overloads_total", "How often more came than the generator could answer: it left the queue group for a "+
		"moment, requests were dropped, or batches of opaque tags were refused.", s.Counts.Overloads)
	for state, n := range s.Counts.States {
		out.add("tags", "Tags in memory, by their state.", float64(n), "state", state)
	}
	out.add("buffered_ids", "IDs in memory, of all tags.", float64(s.Counts.Left))
	out.count("store_errors_total", "Attempts to reserve a range that failed.", s.Counts.StoreErrors)
	if s.FailingLasts != nil {
		out.add("failing_remaining_seconds",
			"How long the IDs of tags last whose refills fail, at the present rates; the least of them. 0 for a strict tag. "+
				"Absent: no tag in use fails.",
			*s.FailingLasts)
	}
	if s.Clock.OffsetMS != nil {
		out.add("clock_offset_seconds",
			"How far the clock is ahead of the median of the other generators'; absent: no other is heard.",
			float64(*s.Clock.OffsetMS)/1e3)
	}
	if s.Worker != nil {
		left := time.UnixMilli(s.ReservedUntil).Sub(time.UnixMilli(s.Clock.UnixMS))
		out.add("worker_id", "The worker that is held for snowflakes; absent: none.", float64(*s.Worker))
		out.add("registry_away", "Whether the last report of the worker did not reach the registry: 1 or 0; absent: no "+
			"worker is held.", truth(s.RegistryAway))
		out.add("worker_reserved_seconds",
			"How long the worker is still reserved if the registry stays unavailable; absent: none is held.", left.Seconds())
	}
	out.add("events_queued", "Events that wait for the stream.", float64(s.Counts.EventsQueued))
	out.count("events_dropped_total", "Events that were dropped because the stream was unavailable.",
		s.Counts.EventsDropped)
	for _, b := range s.Busiest {
		out.count("tag_ids_total", "IDs that were handed out of a tag, for the busiest tags.", b.Taken, "tag", b.Tag)
		if b.Order == idspace.OrderStrict { // 0 IDs in memory would look like a tag that runs out of them
			continue
		}
		out.add("tag_buffered_ids", "IDs in memory of a tag, for the busiest tags; absent: the tag is strict.",
			float64(b.Left), "tag", b.Tag)
		out.add("tag_step_ids", "IDs of the next refill of a tag, for the busiest tags; absent: the tag is strict.",
			float64(b.Step), "tag", b.Tag)
		if b.Lasts != nil {
			out.add("tag_lasts_seconds", "After how many seconds a tag has no IDs in memory if nothing more is reserved, at "+
				"its rate since the refill before the last, "+
				"for the busiest tags; absent: the tag is strict, or nothing was taken since.", *b.Lasts, "tag", b.Tag)
		}
	}
}

// stateMetrics takes metrics. Labels are pairs of name and value.
type stateMetrics chan<- prometheus.Metric

func (out stateMetrics) add(name, help string, value float64, labels ...string) {
	out.send(prometheus.GaugeValue, name, help, value, labels)
}

func (out stateMetrics) count(name, help string, value int64, labels ...string) {
	out.send(prometheus.CounterValue, name, help, float64(value), labels)
}

func (out stateMetrics) send(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	var names, values []string
	for pair := range slices.Chunk(labels, 2) {
		names, values = append(names, pair[0]), append(values, pair[1])
	}
	out <- prometheus.MustNewConstMetric(prometheus.NewDesc("leaf_"+name, help, names, nil), kind, value, values...)
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
