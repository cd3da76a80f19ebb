package tests

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/bus"
)

// No test runs Prometheus or Grafana: neither is what every developer has. What their
// files ask for is compared with what real generators publish.

// The files for Prometheus and Grafana.
const (
	alertsFile     = "deploy/prometheus/alerts.yml"
	prometheusFile = "deploy/prometheus/prometheus.yml"
	dashboardFile  = "deploy/grafana/leafbus.json"
)

// A name that is misspelled there finds nothing, and an alert that finds nothing is silent.
func TestDeployFilesKnowTheMetrics(t *testing.T) {
	t.Parallel()
	known := scrapeAll(t)
	files := make(map[string]string)
	for _, name := range []string{alertsFile, prometheusFile, dashboardFile} {
		files[name] = topFile(t, name)
	}
	readme := topFile(t, "README.md")
	for _, problem := range checkDeploy(files, known, readme) {
		t.Error(problem)
	}
	if address := regexp.MustCompile(`--http ADDR .*\(default "([^"]+)"\)`).FindStringSubmatch(leafOK(t, "serve", "--help")); address == nil ||
		!strings.Contains(files[prometheusFile], "- "+address[1]+" ") {
		t.Errorf("%s does not scrape the address that leaf serve has by default: %q", prometheusFile, address)
	}

	// Each of these mistakes must be found.
	for _, m := range []struct{ file, old, new, found string }{
		{alertsFile, "leaf_serving)", "leaf_servings)", "no metric leaf_servings"},
		{alertsFile, "by (job, kind) (leaf_serving", "by (job, kinds) (leaf_serving", "has no label kinds"},
		{alertsFile, `{state="failing"}`, `{states="failing"}`, "has no label states"},
		{alertsFile, `{state="regressed"}`, `{state="regresed"}`, "state is never regresed"},
		{alertsFile, `|batch_too_large"`, `|batch_to_large"`, "outcome is never batch_to_large"},
		{alertsFile, `leaf.segment.regressed"`, `leaf.segment.regress"`, "type is never leaf.segment.regress"},
		{alertsFile, `{severity="alert"`, `{severity="page"`, "severity is never page"},
		{alertsFile, `up{job="leafbus"} == 0`, `up{job="leaf"} == 0`, "job is never leaf"},
		{alertsFile, "request_duration_seconds_bucket", "request_duration_seconds", "no metric leaf_request_duration_seconds"},
		{alertsFile, "(job, kind, le)", "(job, kind)", "needs the label le"},
		{alertsFile, "(leaf_serving) == 0", "(leaf_serving == 0", "want )"},
		{alertsFile, "(leaf_serving) == 0", "(leaf_serving)) == 0", "unexpected )"},
		{alertsFile, "(leaf_serving) == 0", "(leaf_serving) ==", "the expression ends"},
		{alertsFile, "rate(leaf_store_errors_total[10m])", "rate(leaf_store_errors_total)", "wants a range"},
		{alertsFile, "rate(leaf_store_errors_total[10m])", "rates(leaf_store_errors_total[10m])", "no function rates"},
		{alertsFile, "deriv(leaf_worker", "rate(leaf_worker", "a counter is false"},
		{alertsFile, "/ sum by (job) (rate", "/ sum by (job, outcome) (rate", "never match"},
		{alertsFile, "and on (job, kind) sum", "and on (job, outcome) sum", "no label outcome"},
		{alertsFile, "{{ $labels.what }}", "{{ $labels.state }}", "$labels.state"},
		{alertsFile, "summary: The clock", "title: The clock", "title"},
		{alertsFile, "summary: The clock of", "summary: '' # ", "no summary"},
		{alertsFile, "README: Guarantees", "README: Promises", "no section Promises"},
		{alertsFile, "  severity: page", "  severity: urgent", "urgent"},
		{alertsFile, "alert: LeafRestarts", "alert: LeafSlow", "LeafSlow twice"},
		{dashboardFile, `"id": 7,`, `"id": 6,`, "the id 6 twice"},
		{dashboardFile, `"gridPos": {"x": 4, "y": 1,`, `"gridPos": {"x": 3, "y": 1,`, "overlap"},
		{dashboardFile, "sum(leaf_ready", "sum(leaf_ready_", "no metric leaf_ready_"},
		{dashboardFile, "{{cause}}", "{{reason}}", "{{reason}}"},
		{dashboardFile, `job=\"$job\"`, `job=\"$jobs\"`, "$jobs"},
		{dashboardFile, `"refId": "B"`, `"refId": "A"`, "the query A twice"},
		{dashboardFile, "leaf_waiting_requests", "leaf_buffered_ids", "nothing shows leaf_waiting_requests"},
		{prometheusFile, "- alerts.yml", "- alert.yml", "alert.yml"},
		{prometheusFile, "job_name: leafbus", "job_name: leaf", "job is never leafbus"},
	} {
		broken := maps.Clone(files)
		broken[m.file] = strings.Replace(files[m.file], m.old, m.new, 1)
		if broken[m.file] == files[m.file] {
			t.Errorf("%s has no %q to break", m.file, m.old)
		} else if found := fmt.Sprint(checkDeploy(broken, known, readme)); !strings.Contains(found, m.found) {
			t.Errorf("with %q in %s, want a problem that says %q, found %s", m.new, m.file, m.found, found)
		}
	}
}

// scrapeAll returns what generators publish when all is well, and when not.
func scrapeAll(t *testing.T) vocabulary {
	t.Helper()
	known := make(vocabulary)
	first := withHTTP(t, "--tag", "order")
	second := serve(t, t.TempDir(), "-s", first.url, "--http", "127.0.0.1:0", "--max-wait", "200ms")
	nc := connect(t, first.url)
	granted(t, ask(t, nc, "leaf.segment.order", "5"))
	snowflake(t, nc)
	refused(t, ask(t, nc, "leaf.segment.order", "no number"), 400, bus.BadRequest)
	refused(t, ask(t, nc, "leaf.segment.order", "1000000000000"), 413, bus.BatchTooLarge)
	refused(t, ask(t, nc, "leaf.segment.nosuch", ""), 404, bus.UnknownTag)
	for _, g := range []*generator{first, second} {
		for path, status := range map[string]int{"segment/get/order": 200, "snowflake/get/any": 200, "segment/get/a$b": 500} {
			if p := fetch(t, "GET", g.http+"/api/"+path); p.status != status {
				t.Errorf("%s: %d %s", path, p.status, p.body)
			}
		}
	}
	eventually(t, "the clock of another generator", func() bool {
		return known.scrape(t, first)["leaf_clock_offset_seconds"] && known.scrape(t, second)["leaf_clock_offset_seconds"]
	})
	checkNames(t, first)
	first.kill() // and the store is gone for the second
	eventually(t, "requests that are refused, and an alert", func() bool {
		fetch(t, "GET", second.http+"/api/segment/get/order?count=900000")
		known.scrape(t, second)
		return known["leaf_requests_total"].labels["outcome"]["store_unavailable"] && known["leaf_events_total"].labels["severity"]["alert"]
	})
	return known
}

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

// checkDeploy returns what is wrong with the files.
func checkDeploy(files map[string]string, known vocabulary, readme string) (problems []string) {
	known = maps.Clone(known)
	known.values("up", nil)
	used := make(map[string]bool) // families
	var where string
	report := func(format string, a ...any) { problems = append(problems, where+": "+fmt.Sprintf(format, a...)) }
	strictly := func(name string, v any) {
		where = name
		d := yaml.NewDecoder(strings.NewReader(files[name]))
		d.KnownFields(true)
		if err := d.Decode(v); err != nil {
			report("%v", err)
		}
	}

	var config struct {
		Global        map[string]string
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string `yaml:"job_name"`
			StaticConfigs []struct{ Targets []string }
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(files[prometheusFile]), &config); err != nil || len(config.ScrapeConfigs) != 1 {
		return []string{fmt.Sprintf("%s: %d jobs, want one: %v", prometheusFile, len(config.ScrapeConfigs), err)}
	}
	where = prometheusFile
	if !slices.Equal(config.RuleFiles, []string{"alerts.yml"}) {
		report("it loads the rules %q", config.RuleFiles)
	}
	jobs := []string{config.ScrapeConfigs[0].JobName, "$job"}

	// result checks an expression, and returns the labels of what it finds.
	result := func(expr string) map[string]bool {
		e := expression{known: known, jobs: jobs, used: used, report: report}
		return e.check(expr)
	}

	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	strictly(alertsFile, &rules)
	var alerts []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			where = alertsFile + ": " + rule.Alert
			if slices.Contains(alerts, rule.Alert) {
				report("there is %s twice", rule.Alert)
			}
			alerts = append(alerts, rule.Alert)
			if severity := rule.Labels["severity"]; severity != "page" && severity != "warning" {
				report("the severity is %q", severity)
			}
			labels := result(rule.Expr)
			for _, name := range []string{"summary", "description"} {
				if rule.Annotations[name] == "" {
					report("it has no %s", name)
				}
			}
			for name, text := range rule.Annotations {
				if name != "summary" && name != "description" {
					report("it has the annotation %s", name)
				}
				for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
					if !labels[m[1]] {
						report("the %s has $labels.%s, which the expression does not give", name, m[1])
					}
				}
				for _, m := range regexp.MustCompile(`README: ([^)]*)\)`).FindAllStringSubmatch(text, -1) {
					if !regexp.MustCompile(`(?m)^##+ ` + regexp.QuoteMeta(m[1]) + `$`).MatchString(readme) {
						report("the README has no section %s", m[1])
					}
				}
			}
		}
	}

	known.values("ALERTS", map[string][]string{"alertname": alerts, "alertstate": {"pending", "firing"}, "severity": {"page", "warning"}})
	var board struct {
		Templating struct {
			List []struct {
				Name  string
				Query json.RawMessage
			}
		}
		Panels []struct {
			ID                       int
			Type, Title, Description string
			Datasource               struct{ UID string }
			GridPos                  struct{ X, Y, W, H int }
			FieldConfig              struct{ Defaults struct{ Unit string } }
			Targets                  []struct{ Expr, LegendFormat, RefID string }
		}
	}
	where = dashboardFile
	if err := json.Unmarshal([]byte(files[dashboardFile]), &board); err != nil {
		report("%v", err)
	}
	variables := []string{"__rate_interval"}
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
		var query struct{ Query string }
		if json.Unmarshal(v.Query, &query) != nil {
			continue // the data source
		}
		if m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(query.Query); m == nil || !result(m[1])[m[2]] {
			report("the variable %s has the query %q", v.Name, query.Query)
		}
	}
	for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(files[dashboardFile], -1) {
		if !slices.Contains(variables, m[1]) && m[1] != "__all" {
			report("there is no variable $%s", m[1])
		}
	}
	ids := make(map[int]bool)
	for i, p := range board.Panels {
		where = dashboardFile + ": " + p.Title
		if ids[p.ID] {
			report("there is the id %d twice", p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X < 0 || p.GridPos.X+p.GridPos.W > 24 {
			report("it is at %+v", p.GridPos)
		}
		for _, o := range board.Panels[:i] {
			a, b := p.GridPos, o.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				report("it and %s overlap", o.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			report("it lacks a title, a description, a unit, its data source or a query")
		}
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			if refs[target.RefID] {
				report("there is the query %s twice", target.RefID)
			}
			refs[target.RefID] = true
			labels := result(strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
			for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !labels[m[1]] {
					report("the legend has {{%s}}, which the expression does not give", m[1])
				}
			}
		}
	}

	where = "/metrics"
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if family := known[name].family; strings.HasPrefix(family, "leaf_") && !used[family] {
			used[family] = true
			report("nothing shows %s: neither an alert nor the dashboard", family)
		}
	}
	return problems
}

// expression checks an expression of Prometheus' language: as much of the language as
// alerts and dashboard use.
type expression struct {
	known  vocabulary
	jobs   []string
	used   map[string]bool
	report func(format string, a ...any)
	tokens []string
}

var (
	tokenForm = regexp.MustCompile(`"[^"]*"|'[^']*'|[a-zA-Z_]\w*|[0-9][0-9a-z.]*|[=!<>]=|[=!]~|[-+*/<>=(){}\[\],]|\S`)
	nameForm  = regexp.MustCompile(`^[a-zA-Z_]\w*$`)
	rangeForm = regexp.MustCompile(`^([0-9]+[smhd])+$`)
)

// What the language has.
var (
	aggregations = []string{"sum", "min", "max", "count", "avg"}
	onRanges     = []string{"rate", "increase", "deriv", "changes"}
	functions    = []string{"abs", "absent", "histogram_quantile", "time", "vector", "rate", "increase", "deriv", "changes"}
	operators    = [][]string{{"or"}, {"and", "unless"}, {"==", "!=", "<", ">", "<=", ">="}, {"+", "-"}, {"*", "/"}} // the loosest first
)

// syntax is why an expression cannot be read.
type syntax string

// check returns the labels of what the expression finds.
func (e *expression) check(text string) (labels map[string]bool) {
	e.tokens = tokenForm.FindAllString(text, -1)
	defer func() {
		if why, ok := recover().(syntax); ok {
			e.report("%s in %s", why, text)
		}
	}()
	labels = e.binary(0)
	if len(e.tokens) > 0 {
		panic(syntax("unexpected " + e.tokens[0]))
	}
	return labels
}

func (e *expression) peek() string {
	if len(e.tokens) == 0 {
		return ""
	}
	return e.tokens[0]
}

func (e *expression) next() string {
	if len(e.tokens) == 0 {
		panic(syntax("the expression ends too early"))
	}
	token := e.tokens[0]
	e.tokens = e.tokens[1:]
	return token
}

// takes reads the token if it is there.
func (e *expression) takes(token string) bool {
	if e.peek() != token {
		return false
	}
	e.next()
	return true
}

func (e *expression) want(token string) {
	if !e.takes(token) {
		panic(syntax("want " + token + ", there is " + strconv.Quote(e.peek())))
	}
}

// list reads labels in parentheses.
func (e *expression) list() map[string]bool {
	labels := make(map[string]bool)
	e.want("(")
	for {
		labels[e.next()] = true
		if !e.takes(",") {
			e.want(")")
			return labels
		}
	}
}

// among reports labels that there are not.
func (e *expression) among(labels, all map[string]bool) {
	for label := range labels {
		if !all[label] {
			e.report("what is grouped or matched has no label %s", label)
		}
	}
}

// binary reads operators of a level or tighter ones. Labels are nil for a number.
func (e *expression) binary(level int) map[string]bool {
	if level == len(operators) {
		return e.operand()
	}
	left := e.binary(level + 1)
	for slices.Contains(operators[level], e.peek()) {
		op := e.next()
		var on map[string]bool
		if e.takes("on") {
			on = e.list()
		}
		right := e.binary(level + 1)
		switch {
		case left == nil:
			left = right
		case right == nil:
		case on != nil:
			e.among(on, left)
			e.among(on, right)
			if slices.Contains(operators[3], op) || slices.Contains(operators[4], op) {
				left = on
			}
		case !maps.Equal(left, right):
			e.report("the two sides of %q never match: %v and %v", op, slices.Sorted(maps.Keys(left)), slices.Sorted(maps.Keys(right)))
		}
	}
	return left
}

func (e *expression) operand() (labels map[string]bool) {
	token := e.next()
	switch {
	case token == "(":
		labels = e.binary(0)
		e.want(")")
		return labels
	case token == "-":
		return e.operand()
	case token[0] >= '0' && token[0] <= '9':
		return nil
	case !nameForm.MatchString(token):
		panic(syntax("unexpected " + token))
	case slices.Contains(aggregations, token):
		by := make(map[string]bool)
		if e.takes("by") {
			by = e.list()
		}
		e.want("(")
		e.among(by, e.binary(0))
		e.want(")")
		return by
	case e.peek() == "(":
		return e.call(token)
	}
	labels, ranged := e.selector(token)
	if ranged {
		panic(syntax("there is a range of " + token + " outside a function"))
	}
	return labels
}

// call reads the arguments of a function.
func (e *expression) call(name string) (labels map[string]bool) {
	if !slices.Contains(functions, name) {
		panic(syntax("there is no function " + name))
	}
	e.want("(")
	switch {
	case name == "time":
	case slices.Contains(onRanges, name):
		metric := e.next()
		var ranged bool
		if labels, ranged = e.selector(metric); !ranged {
			panic(syntax(name + " wants a range of " + metric))
		}
		wanted := name == "rate" || name == "increase"
		if s, ok := e.known[metric]; ok && s.counter != wanted {
			e.report("%s of %s: whether it is a counter is %v", name, metric, s.counter)
		}
	case name == "histogram_quantile":
		e.binary(0)
		e.want(",")
		labels = maps.Clone(e.binary(0))
		if !labels["le"] {
			e.report("%s needs the label le", name)
		}
		delete(labels, "le")
	default:
		labels = e.binary(0)
		switch name {
		case "vector":
			labels = map[string]bool{}
		case "absent": // has those that are asked for
			labels = map[string]bool{"job": true}
		}
	}
	e.want(")")
	return labels
}

// selector reads what follows the name of a metric.
func (e *expression) selector(metric string) (labels map[string]bool, ranged bool) {
	s, ok := e.known[metric]
	if !ok {
		e.report("there is no metric %s", metric)
	}
	e.used[s.family] = true
	labels = make(map[string]bool)
	for label := range s.labels {
		labels[label] = true
	}
	if e.takes("{") {
		for !e.takes("}") {
			label, op, value := e.next(), e.next(), strings.Trim(e.next(), `"'`)
			if values, has := s.labels[label]; ok && !has {
				e.report("%s has no label %s", metric, label)
			} else if ok {
				e.value(label, op, value, values)
			}
			if !e.takes(",") {
				e.want("}")
				break
			}
		}
	}
	if e.takes("[") {
		if span := e.next(); !rangeForm.MatchString(span) {
			panic(syntax("the range is " + span))
		}
		e.want("]")
		ranged = true
	}
	if e.takes("offset") {
		if span := e.next(); !rangeForm.MatchString(span) {
			panic(syntax("the offset is " + span))
		}
	}
	return labels, ranged
}

// value checks a value that a label is compared with: all alternatives of a pattern.
func (e *expression) value(label, op, value string, values map[string]bool) {
	if label == "job" && !slices.Contains(e.jobs, value) {
		e.report("job is never %s, but %q", value, e.jobs)
	}
	alternatives := []string{regexp.QuoteMeta(value)}
	switch op {
	case "=", "!=":
	case "=~", "!~":
		alternatives = strings.Split(value, "|")
	default:
		panic(syntax("unexpected " + op))
	}
	if values == nil {
		return
	}
	for _, alternative := range alternatives {
		pattern, err := regexp.Compile("^(?:" + alternative + ")$")
		if err != nil {
			panic(syntax(err.Error()))
		}
		seen := label == "type" && isEvent(strings.ReplaceAll(alternative, `\`, ""))
		for v := range values {
			seen = seen || pattern.MatchString(v)
		}
		if !seen {
			e.report("%s is never %s", label, alternative)
		}
	}
}
