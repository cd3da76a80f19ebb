package gateway

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
)

// missable is what may be missing; each has a series of its own, so that none comes and goes.
var missable = []string{"bus", "nats", "store", "worker", "clock", "draining"}

// stateCollector makes metrics of what the generator's state is when it is asked.
type stateCollector struct{ state *shared[bus.State] }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("leaf_"+name, help, labels, nil)
}

var (
	descBuild    = describe("build_info", "1, for the version that runs.", "version", "go_version", "node")
	descReady    = describe("ready", "Whether all is there that the generator is configured with: 1, or 0 as /readyz has it.")
	descMissing  = describe("missing", "Whether this is missing, as /readyz says: 1 or 0.", "what")
	descServing  = describe("serving", "Whether the generator can answer with IDs of this kind, be it from memory alone: 1 or 0.", "kind")
	descWaiting  = describe("waiting_requests", "Requests that wait now, for a segment or for time.")
	descTags     = describe("tags", "Tags in memory, by their state.", "state")
	descLeft     = describe("buffered_ids", "IDs in memory, of all tags.")
	descErrors   = describe("store_errors_total", "Attempts to reserve a range that failed.")
	descLasts    = describe("failing_remaining_seconds", "How long the IDs of the tags last whose refills fail, at the present rates, the least of them; absent: none fails that is used.")
	descAway     = describe("registry_away", "Whether the last report of the worker did not reach the registry: 1 or 0; absent: no worker is held.")
	descOffset   = describe("clock_offset_seconds", "How far the clock is ahead of the median of the other generators'; absent where none is heard.")
	descWorker   = describe("worker_id", "The worker that is held for snowflakes; absent: none.")
	descReserved = describe("worker_reserved_seconds", "How long the worker is still reserved if the registry stays away; absent: none is held.")
	descQueued   = describe("events_queued", "Events that wait for the stream.")
	descDropped  = describe("events_dropped_total", "Events that were dropped for want of a stream.")

	descTagLeft  = describe("tag_buffered_ids", "IDs in memory of a tag, for the busiest tags.", "tag")
	descTagTaken = describe("tag_ids_total", "IDs that were handed out of a tag, for the busiest tags.", "tag")
	descTagStep  = describe("tag_step_ids", "IDs of the next refill of a tag, for the busiest tags.", "tag")
)

// Describe implements [prometheus.Collector].
func (c stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descBuild, descReady, descMissing, descServing, descWaiting, descTags, descLeft, descLasts, descErrors, descOffset,
		descWorker, descReserved, descAway, descQueued, descDropped, descTagLeft, descTagTaken, descTagStep,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.state.get()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(descBuild, 1, s.Version, runtime.Version(), s.Node)
	gauge(descReady, truth(s.Ready))
	for _, what := range missable {
		_, missing := s.Reasons[what]
		gauge(descMissing, truth(missing), what)
	}
	gauge(descServing, truth(s.Segment), generator.SegmentKind.String())
	gauge(descServing, truth(s.Snowflake), generator.SnowflakeKind.String())
	gauge(descWaiting, float64(s.Counts.Waiting))
	for state, n := range s.Counts.States {
		gauge(descTags, float64(n), state)
	}
	gauge(descLeft, float64(s.Counts.Left))
	counter(descErrors, s.Counts.StoreErrors)
	if s.FailingLasts != nil {
		gauge(descLasts, *s.FailingLasts)
	}
	if s.Clock.OffsetMS != nil {
		gauge(descOffset, float64(*s.Clock.OffsetMS)/1e3)
	}
	if s.Worker != nil {
		gauge(descWorker, float64(*s.Worker))
		gauge(descAway, truth(s.RegistryAway))
		gauge(descReserved, time.UnixMilli(s.ReservedUntil).Sub(time.UnixMilli(s.Clock.UnixMS)).Seconds())
	}
	gauge(descQueued, float64(s.Counts.EventsQueued))
	counter(descDropped, s.Counts.EventsDropped)
	for _, b := range s.Busiest {
		gauge(descTagLeft, float64(b.Left), b.Tag)
		counter(descTagTaken, b.Taken, b.Tag)
		gauge(descTagStep, float64(b.Step), b.Tag)
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
