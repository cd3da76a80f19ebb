//go:build drills

package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// history is what Prometheus has read of generators: text with the time of each value. So it judges hours at once.
type history struct {
	text  strings.Builder
	began time.Time
}

// add adds a series that was read until it lasted for so long. value is its value after a time.
func (h *history) add(series string, every, lasted time.Duration, value func(after time.Duration) float64) {
	for after := time.Duration(0); after <= lasted; after += every {
		fmt.Fprintf(&h.text, "%s %g %d\n", series, value(after), h.began.Add(after).UnixMilli())
	}
}

// Some rules judge by how long something lasts. Each job has a history, and its rule fires from a time to another, or not.
func TestDrillRules(t *testing.T) {
	const minute, lasted = time.Minute, 100 * time.Minute
	h := &history{began: time.Now().Add(-lasted).Truncate(time.Second)}
	type fires struct{ rule, job string }
	want := make(map[fires][2]time.Duration) // not before, and not after; zero: never

	constantly := func(v float64) func(time.Duration) float64 { return func(time.Duration) float64 { return v } }
	for _, every := range []time.Duration{15 * time.Second, minute} {
		for name, c := range map[string]struct {
			overload         time.Duration // of generators 1 and 2, from the tenth minute on
			generators, away int           // away have left the queue group
			from, to         time.Duration
		}{
			"all are overloaded":                   {10 * minute, 2, 0, 15 * minute, 24 * minute},
			"all are overloaded for 5 s":           {5 * time.Second, 2, 0, 0, 0},
			"one of three has room":                {10 * minute, 3, 0, 0, 0},
			"two are overloaded, and one is empty": {10 * minute, 3, 1, 15 * minute, 24 * minute},
			"all are overloaded for half a minute": {30 * time.Second, 2, 0, 0, 0},
		} {
			job := fmt.Sprint(name, ", read each ", every)
			want[fires{"LeafOverloaded", job}] = [2]time.Duration{c.from, c.to}
			for i := range c.generators {
				labels := fmt.Sprintf("job=%q,instance=%q", job, fmt.Sprint(i+1))
				overload := c.overload
				if i > 1 {
					overload = 0
				}
				h.add("leaf_overloads_total{"+labels+"}", every, 40*minute, func(after time.Duration) float64 {
					return 6 * min(max(after-10*minute, 0), overload).Seconds() // 6 probes a second
				})
				serving := constantly(1)
				if i >= c.generators-c.away {
					serving = constantly(0)
				}
				h.add("leaf_serving{"+labels+`,kind="segment"}`, every, 40*minute, serving)
				h.add("leaf_serving{"+labels+`,kind="snowflake"}`, every, 40*minute, constantly(1))
			}
		}
		for name, c := range map[string]struct {
			lasts    func(after time.Duration) float64
			from, to time.Duration
		}{
			"two buffers that swing from 150 s to 300 s and more": {func(after time.Duration) float64 { return 150 + float64(after.Milliseconds()/1000%300) }, 60 * minute, lasted},
			"a new tag that grows":                                {func(after time.Duration) float64 { return min(900, 20+after.Minutes()*10) }, 0, 0},
			"a tag that lasts":                                    {constantly(900), 0, 0},
		} {
			job := fmt.Sprint(name, ", read each ", every)
			want[fires{"LeafTagLastsShort", job}] = [2]time.Duration{c.from, c.to}
			labels := fmt.Sprintf(`job=%q,instance="1",tag="order"`, job)
			h.add("leaf_tag_lasts_seconds{"+labels+"}", every, lasted, c.lasts)
			h.add("leaf_tag_ids_total{"+labels+"}", every, lasted, func(after time.Duration) float64 { return 100 * after.Seconds() })
		}
	}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, h.text.String()) // what it has already read it drops
	}))
	t.Cleanup(target.Close)
	dir, address := t.TempDir(), strings.TrimPrefix(target.URL, "http://")
	writeFile(t, filepath.Join(dir, filepath.Base(prometheusFile)), fmt.Sprintf(
		"global: {scrape_interval: 1s}\nscrape_configs: [{job_name: leafbus, honor_labels: true, static_configs: [{targets: [%q]}]}]\n", address))
	prometheus := startPrometheus(t, dir, []string{address})

	for of, bounds := range want {
		from, to := h.firing(t, prometheus, of.rule, of.job)
		t.Logf("%s, %s: from %v to %v", of.rule, of.job, from, to)
		if never := bounds[1] == 0; never != (to == 0) || !never && (from < bounds[0] || from > bounds[0]+2*minute || to > bounds[1]) {
			t.Errorf("%s, %s: it fires from %v to %v, want %v", of.rule, of.job, from, to, bounds)
		}
	}
}

// firing is from when to when a rule fires for a job, by the start of the history; zero: it never does.
func (h *history) firing(t *testing.T, prometheus, rule, job string) (from, to time.Duration) {
	t.Helper()
	const step = 15 * time.Second
	expr, pending := ruleOf(t, rule)
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	body := fetch(t, "GET", prometheus+"/api/v1/query_range?"+url.Values{"query": {expr}, "step": {step.String()},
		"start": {h.began.UTC().Format(time.RFC3339)}, "end": {time.Now().UTC().Format(time.RFC3339)}}.Encode()).body
	if err := json.Unmarshal([]byte(body), &answer); err != nil || !strings.Contains(body, `"status":"success"`) {
		t.Fatalf("%v: %s", err, body)
	}
	var since, last time.Duration // it holds at all steps from since to last
	for _, series := range answer.Data.Result {
		if series.Metric["job"] != job {
			continue
		}
		for _, v := range series.Values {
			after := time.Duration(v[0].(float64)*float64(time.Second)) - time.Duration(h.began.UnixNano())
			if last == 0 || after > last+step+step/2 {
				since = after
			}
			if last = after; last-since >= pending {
				if to == 0 {
					from = last
				}
				to = last
			}
		}
	}
	return from, to
}

// ruleOf returns an alert's expression, and for how long it must hold.
func ruleOf(t *testing.T, name string) (expr string, pending time.Duration) {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				For         time.Duration
			}
		}
	}
	must(t, yaml.Unmarshal([]byte(topFile(t, alertsFile)), &rules))
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == name {
				return rule.Expr, rule.For
			}
		}
	}
	t.Fatalf("there is no rule %s", name)
	return "", 0
}
