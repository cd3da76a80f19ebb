package gateway

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
)

// The buckets of durations, in seconds: requests are answered from memory within
// microseconds, and wait for up to a minute; refills take a write to a disk at least.
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
	bus.BadRequest, bus.BadTag, bus.UnknownTag, bus.BatchTooLarge, bus.Overloaded, bus.Internal, bus.StoreUnavailable,
	bus.StoreRegressed, bus.ClockBackwards, bus.NoWorkerID, bus.Draining, bus.TimedOut, bus.Exhausted, generator.Canceled,
}

// Metrics are what a generator measures for Prometheus. It is the generator's
// [bus.Observer]. How many series there are does not depend on the number of tags: those
// of single tags are of the busiest ones.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	answered [2][3]answered // by face and kind
	refills  *prometheus.HistogramVec
	reserved *prometheus.CounterVec
	events   map[string]prometheus.Counter // by type
}

// answered is what a request that got its answer counts for. It is looked up once: that
// by labels takes longer than to count.
type answered struct {
	ok, ids, waits prometheus.Counter
	took           prometheus.Observer
}

// NewMetrics returns metrics that nothing has happened to.
func NewMetrics() *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: counters("leaf_requests_total", "Requests that were answered, by what came of them: ok, or the reason of the error.", "face", "kind", "outcome"),
		refills: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leaf_refill_duration_seconds", Help: "How long the store took to reserve a range, by why it was wanted.", Buckets: refillBuckets,
		}, []string{"cause"}),
		reserved: counters("leaf_reserved_ids_total", "IDs that were reserved in the store, by why they were wanted.", "cause"),
		events:   make(map[string]prometheus.Counter),
	}
	events := counters("leaf_events_total", "Events that were told to the event stream.", "severity", "type")
	ids := counters("leaf_ids_total", "IDs that were handed out.", "face", "kind")
	waits := counters("leaf_waits_total", "Requests that had to wait, for a segment or for time.", "face", "kind")
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "leaf_request_duration_seconds", Help: "How long the generator took for a request, from its arrival to the answer.", Buckets: requestBuckets,
	}, []string{"face", "kind"})
	for face := range m.answered {
		for kind := range m.answered[face] {
			f, k := generator.Transport(face).String(), generator.Kind(kind).String()
			if generator.Transport(face) == generator.HTTP && generator.Kind(kind) == generator.AdminKind {
				continue // which is for the bus
			}
			a := &m.answered[face][kind]
			a.ok, a.took = m.requests.WithLabelValues(f, k, "ok"), took.WithLabelValues(f, k)
			if generator.Kind(kind) != generator.AdminKind {
				a.ids, a.waits = ids.WithLabelValues(f, k), waits.WithLabelValues(f, k)
			}
		}
	}
	// From 0 on: of what appears with its first one that one would not be seen to come.
	for what, severity := range bus.EventTypes() {
		m.events[what] = events.WithLabelValues(severity, what)
	}
	for _, kind := range []generator.Kind{generator.SegmentKind, generator.SnowflakeKind} {
		for _, reason := range refusals {
			m.requests.WithLabelValues(generator.NATS.String(), kind.String(), string(reason))
			m.requests.WithLabelValues(generator.HTTP.String(), kind.String(), string(reason))
		}
	}
	for _, cause := range []allocator.Cause{allocator.CauseDemand, allocator.CausePrefetch, allocator.CauseBatch} {
		m.refills.WithLabelValues(string(cause))
		m.reserved.WithLabelValues(string(cause))
	}
	m.registry.MustRegister(m.requests, m.refills, m.reserved, events, ids, waits, took,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Answered implements [bus.Observer].
func (m *Metrics) Answered(a generator.Answer) {
	counts := &m.answered[a.Transport][a.Kind]
	counts.took.Observe(a.Took.Seconds())
	if a.Waited {
		counts.waits.Inc()
	}
	if a.Reason != "" {
		m.requests.WithLabelValues(a.Transport.String(), a.Kind.String(), string(a.Reason)).Inc()
		return
	}
	counts.ok.Inc()
	if a.IDs > 0 {
		counts.ids.Add(float64(a.IDs))
	}
}

// Refilled implements [bus.Observer].
func (m *Metrics) Refilled(r allocator.Refilled) {
	m.refills.WithLabelValues(string(r.Cause)).Observe(r.Elapsed.Seconds())
	m.reserved.WithLabelValues(string(r.Cause)).Add(float64(r.Len()))
}

// EventPublished implements [generator.Observer].
func (m *Metrics) EventPublished(what string) { m.events[what].Inc() }

// handler serves the metrics, and with them the state of g. One generator has them.
func (m *Metrics) handler(g Generator) http.Handler {
	m.registry.MustRegister(stateCollector{newShared(g.State)})
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		Timeout:             viewTimeout,
	})
}
