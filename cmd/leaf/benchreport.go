package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/load"
)

// benchReport is what a load found, as --json writes it.
type benchReport struct {
	Tag     string  `json:"tag,omitempty"`
	With    string  `json:"with"`
	Callers int     `json:"callers"`
	Count   int64   `json:"count"`
	Rate    float64 `json:"rate,omitempty"`

	Seconds           float64   `json:"seconds"`
	Requests          int64     `json:"requests"` // answered with IDs
	RequestsPerSecond float64   `json:"requests_per_second"`
	IDs               int64     `json:"ids"`
	IDsPerSecond      float64   `json:"ids_per_second"`
	IDsBefore         int64     `json:"ids_before"` // of the first request, which is not measured
	Latency           latency   `json:"latency_us"`
	Errors            []failure `json:"errors"`
	Unsent            int64     `json:"unsent,omitempty"`
	Retries           int64     `json:"retries,omitempty"` // of requests that were refused, or not answered in time
	Generators        []share   `json:"generators,omitempty"`
	Gone              []string  `json:"generators_gone,omitempty"` // that were there at the beginning

	Runs     int       `json:"runs"` // of neighbours that the IDs make
	Repeated int64     `json:"repeated"`
	Repeats  []idRange `json:"repeats,omitempty"`

	Stopped  string   `json:"stopped,omitempty"`
	Warnings []string `json:"warnings"`

	adding float64 // as in effort
}

// latency is of requests that succeeded, in µs.
type latency struct {
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99.9"`
	P9999 float64 `json:"p99.99"`
	Max   float64 `json:"max"`
}

// share is how many requests a generator answered during the load, those of others among them.
type share struct {
	Node     string `json:"node"`
	Requests int64  `json:"requests"`
}

// idRange is a range in JSON.
type idRange struct {
	First bus.ID `json:"first"`
	Last  bus.ID `json:"last"`
}

// report puts together what the callers counted. stopped is why the load ended early, or nil.
func (b *bench) report(result load.Result, stopped error) *benchReport {
	l := b.cfg.load
	runs, repeated, repeats := b.seen.Finish()
	r := &benchReport{
		Tag: b.cfg.tag, With: b.cfg.with, Callers: l.Callers, Count: b.cfg.count, Rate: l.Rate,
		IDsBefore: b.before, Seconds: result.Elapsed.Seconds(), Requests: result.Latency.TotalCount(), RequestsPerSecond: result.PerSecond(),
		Latency: latencyOf(result), Errors: []failure{}, Unsent: result.Unsent,
		Runs: len(runs), Repeated: repeated, Warnings: []string{},
	}
	for i := range b.callers {
		r.IDs += b.callers[i].taken
		r.adding += b.callers[i].adding.Seconds() / r.Seconds / float64(l.Callers)
	}
	r.IDsPerSecond = float64(r.IDs) / r.Seconds
	for _, reason := range slices.Sorted(maps.Keys(b.failures)) {
		r.Errors = append(r.Errors, *b.failures[reason])
	}
	for _, again := range repeats {
		r.Repeats = append(r.Repeats, idRange{bus.ID(again.First), bus.ID(again.Last)})
	}
	if stopped != nil {
		r.Stopped = stopped.Error()
	}
	return r
}

// judge adds the warnings: what to know before one believes the figures.
func (r *benchReport) judge(e effort) {
	warn := func(format string, a ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, a...)) }
	if r.Stopped != "" {
		warn("it ended early: %s", r.Stopped)
	}
	e.adding = r.adding
	if why := e.limit(r.With, micros(r.Latency.P50)); r.Requests > 0 && why != "" {
		warn("this client was the limit (%s): run leaf bench on another machine, or several", why)
	} else if r.Callers == 1 && r.Rate == 0 && r.With != withPool {
		warn("one request at a time shows how long one takes. More --callers give more requests a second")
	}
	if r.Unsent > 0 {
		warn("%d requests were due and not made, because no caller was free: give more --callers, or a lower --rate", r.Unsent)
	}
	if r.Retries > r.Requests/10 {
		warn("%d requests were refused or not answered in time, and sent again; the latencies include that time. Has the tag a quota? See leaf tag show", r.Retries)
	}
}

// latencyOf are the latencies of the report.
func latencyOf(r load.Result) latency {
	at := func(percent float64) float64 { return float64(r.At(percent)) / 1e3 }
	return latency{at(50), at(90), at(99), at(99.9), at(99.99), at(100)}
}

// micros is a duration of so many µs.
func micros(us float64) time.Duration { return time.Duration(us * 1e3) }

// shares is what each generator answered between two looks, and which were there
// at the first alone. What those answered nobody can be asked.
func shares(before, after map[string]int64) (all []share, gone []string) {
	if after == nil {
		return nil, nil
	}
	for _, node := range slices.Sorted(maps.Keys(before)) {
		if _, there := after[node]; !there {
			gone = append(gone, node)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(after)) {
		n := after[node]
		if n >= before[node] { // else it was started again
			n -= before[node]
		}
		all = append(all, share{node, n})
	}
	return all, gone
}

// print writes the report. IDs that came twice are an error, and so is a load of which nothing succeeded.
func (r *benchReport) print(cmd *cobra.Command, asJSON bool) error {
	var err error
	if asJSON {
		err = cli.PrintJSON(cmd.OutOrStdout(), r)
	} else {
		err = r.printText(cmd.OutOrStdout())
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
	}
	switch {
	case err != nil:
		return err
	case r.Repeated > 0:
		return fmt.Errorf("%d IDs CAME MORE THAN ONCE, among them %s: use no IDs of this installation until it is known why", r.Repeated, r.repeats())
	case r.Requests == 0 && len(r.Errors) > 0:
		return errors.New("no request succeeded: " + r.Errors[0].First)
	}
	return nil
}

func (r *benchReport) printText(w io.Writer) error {
	rows := [][]string{
		{"requests", fmt.Sprintf("%d in %.1f s, %.0f a second", r.Requests, r.Seconds, r.RequestsPerSecond)},
		{"IDs", fmt.Sprintf("%d, %.0f a second, none twice", r.IDs, r.IDsPerSecond)},
	}
	if r.Repeated > 0 {
		rows[1][1] = fmt.Sprintf("%d, %.0f a second, SOME MORE THAN ONCE: %s", r.IDs, r.IDsPerSecond, r.repeats())
	}
	rows = append(rows, []string{"not measured", fmt.Sprintf("the first request (IDs: %d)", r.IDsBefore)})
	if r.Requests > 0 {
		rows = append(rows, []string{"latency", r.Latency.String()})
	}
	for _, f := range r.Errors {
		rows = append(rows, []string{"errors", fmt.Sprintf("%d %s: %s", f.Count, f.Reason, f.First)})
	}
	if len(r.Generators)+len(r.Gone) > 0 {
		var each []string
		for _, g := range r.Generators {
			each = append(each, g.Node+" "+strconv.FormatInt(g.Requests, 10))
		}
		for _, node := range r.Gone {
			each = append(each, node+" is gone")
		}
		rows = append(rows, []string{"meanwhile", "requests of all clients, answered by " + strings.Join(each, ", ")})
	}
	return cli.PrintTable(w, rows[0], rows[1:])
}

// repeats are the IDs that came twice, or some of them.
func (r *benchReport) repeats() string {
	var text []string
	for _, again := range r.Repeats {
		text = append(text, bus.Range{First: int64(again.First), Last: int64(again.Last)}.String())
	}
	return strings.Join(text, ", ")
}

func (l latency) String() string {
	var text []string
	for _, q := range []struct {
		name string
		us   float64
	}{{"p50", l.P50}, {"p90", l.P90}, {"p99", l.P99}, {"p99.9", l.P999}, {"p99.99", l.P9999}, {"max", l.Max}} {
		text = append(text, fmt.Sprintf("%s %s", q.name, short(micros(q.us))))
	}
	return strings.Join(text, ", ")
}

// short is a duration with three digits.
func short(d time.Duration) string {
	for unit := time.Duration(1); unit < time.Minute; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}
