package tests

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/leafbus/leafbus/bus"
)

// vocabulary is what expressions may ask for, by name.
type vocabulary map[string]series

// series are all of one name. The values of a label are those that were seen; nil
// stands for any.
type series struct {
	family  string
	counter bool
	labels  map[string]map[string]bool
}

// metricsOf is what a generator publishes.
func metricsOf(t *testing.T, g *generator) *strings.Reader {
	t.Helper()
	p := fetch(t, "GET", g.http+"/metrics")
	if p.status != 200 {
		t.Fatalf("/metrics: %d %s", p.status, p.body)
	}
	return strings.NewReader(p.body)
}

// checkNames checks Prometheus' own rules about names, types and help.
func checkNames(t *testing.T, g *generator) {
	t.Helper()
	bad, err := promlint.New(metricsOf(t, g)).Lint()
	must(t, err)
	for _, b := range bad {
		t.Errorf("%s: %s", b.Metric, b.Text)
	}
}

// scrape adds what a generator publishes, and returns the names of its families.
func (v vocabulary) scrape(t *testing.T, g *generator) map[string]bool {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metricsOf(t, g))
	must(t, err)
	names := make(map[string]bool)
	for name, family := range families {
		names[name] = true
		kind := family.GetType().String()
		for _, m := range family.GetMetric() {
			labels := map[string]string{"job": "", "instance": ""}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch kind {
			case "HISTOGRAM", "SUMMARY":
				v.add(name, name+"_sum", true, labels)
				v.add(name, name+"_count", true, labels)
			}
			switch kind {
			case "HISTOGRAM":
				labels["le"] = ""
				v.add(name, name+"_bucket", true, labels)
			case "SUMMARY":
				for _, q := range m.GetSummary().GetQuantile() {
					labels["quantile"] = strconv.FormatFloat(q.GetQuantile(), 'g', -1, 64)
					v.add(name, name, false, labels)
				}
			default:
				v.add(name, name, kind == "COUNTER", labels)
			}
		}
	}
	return names
}

// free are the labels whose values are the users'.
var free = []string{"job", "instance", "le", "tag", "node", "version", "go_version"}

func (v vocabulary) add(family, name string, counter bool, labels map[string]string) {
	if v[name].labels == nil {
		v[name] = series{family, counter, make(map[string]map[string]bool)}
	}
	for label, value := range labels {
		values := v[name].labels[label]
		if slices.Contains(free, label) {
			values = nil
		} else if values == nil {
			values = make(map[string]bool)
		}
		if values != nil {
			values[value] = true
		}
		v[name].labels[label] = values
	}
}

// values adds a name that is Prometheus' own, with all values that each label may have.
func (v vocabulary) values(name string, labels map[string][]string) {
	v.add("", name, false, map[string]string{"job": "", "instance": ""})
	for label, values := range labels {
		for _, value := range values {
			v.add("", name, false, map[string]string{label: value})
		}
	}
}

// isEvent reports whether there are events of this type, which need not have happened.
func isEvent(what string) bool {
	kind, ok := strings.CutPrefix(what, "leaf.")
	e, err := bus.ParseEvent("leaf.events.info."+kind+".key", nats.Header{"ce-time": {time.Now().Format(time.RFC3339)}}, []byte("{}"))
	return ok && err == nil && e.Body != nil
}
