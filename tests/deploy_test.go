package tests

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// Only the drills run Prometheus, and nothing runs Grafana: neither is what every developer has. Here, what their files ask
// for is compared with what real generators publish.

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
		{alertsFile, `{action="refused"}`, `{action="refuse"}`, "action is never refuse"},
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
		{alertsFile, "min_over_time(leaf_tag_lasts_seconds[15m])", "min_over_time(leaf_tag_lasts_seconds)", "wants a range"},
		{alertsFile, "min_over_time(leaf_tag_lasts_seconds[15m])", "rate(leaf_tag_lasts_seconds[15m])", "a counter is false"},
		{alertsFile, `leaf_serving{kind="segment"}`, `leaf_serving{kind="segments"}`, "kind is never segments"},
		{alertsFile, "max by (job, instance) (leaf_registry_away)", "rate(leaf_registry_away[5m])", "a counter is false"},
		{alertsFile, "/ sum by (job) (rate", "/ sum by (job, outcome) (rate", "never match"},
		{alertsFile, "and on (job, kind) sum", "and on (job, outcome) sum", "no label outcome"},
		{alertsFile, "{{ $labels.what }}", "{{ $labels.state }}", "$labels.state"},
		{alertsFile, "summary: The clock", "title: The clock", "title"},
		{alertsFile, "summary: The clock of", "summary: '' # ", "no summary"},
		{alertsFile, "README: Guarantees", "README: Promises", "no section Promises"},
		{alertsFile, "  severity: page", "  severity: urgent", "urgent"},
		{alertsFile, "alert: LeafRestarts", "alert: LeafSlow", "LeafSlow twice"},
		{alertsFile, "runbook.md#leafslow", "runbook.md#slow", "runbook_url"},
		{alertsFile, "runbook_url: https://github.com/leafbus/leafbus/blob/main/docs/runbook.md#leafslow", "summary2: no", "no runbook_url"},
		{alertsFile, "record: job:leaf_refused:ratio_rate30m", "record: job:leaf_refused:ratio_rate1h", "twice"},
		{alertsFile, "job:leaf_refused:ratio_rate6h > 0.006", "job:leaf_refused:ratio_rate7h > 0.006", "no metric job:leaf_refused:ratio_rate7h"},
		{dashboardFile, `"titleFormat": "{{alertname}}"`, `"titleFormat": "{{name}}"`, "{{name}}"},
		{dashboardFile, "max by (alertname, severity) (ALERTS", "max by (alertname, severity) (up", "no annotation shows the alerts"},
		{dashboardFile, `docs/runbook.md"`, `docs/book.md"`, "does not lead to the runbook"},
		{dashboardFile, `"id": 7,`, `"id": 6,`, "the id 6 twice"},
		{dashboardFile, `"gridPos": {"x": 4, "y": 1,`, `"gridPos": {"x": 3, "y": 1,`, "overlap"},
		{dashboardFile, "sum(leaf_ready", "sum(leaf_ready_", "no metric leaf_ready_"},
		{dashboardFile, "{{cause}}", "{{reason}}", "{{reason}}"},
		{dashboardFile, `job=\"$job\"`, `job=\"$jobs\"`, "$jobs"},
		{dashboardFile, `by=\"peer\"`, `by=\"peers\"`, "by is never peers"},
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
	second := serve(t, t.TempDir(), "-s", first.url, "--http", "127.0.0.1:0", "--max-wait", "2s")
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
	testkit.Eventually(t, "the clock of another generator", func() bool {
		return known.scrape(t, first)["leaf_clock_offset_seconds"] && known.scrape(t, second)["leaf_clock_offset_seconds"]
	})
	checkNames(t, first)
	first.kill() // and the store is gone for the second
	testkit.Eventually(t, "refills that fail of a tag that is used", func() bool {
		fetch(t, "GET", second.http+"/api/segment/get/order?count=900000")
		known.scrape(t, second)
		return known["leaf_failing_remaining_seconds"].labels != nil && known["leaf_tag_refused_seconds"].labels != nil
	})
	return known
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
				Alert, Record       string
				Expr, For           string
				Labels, Annotations map[string]string
			}
		}
	}
	strictly(alertsFile, &rules)
	var alerts []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Record == "" {
				continue
			}
			where = alertsFile + ": " + rule.Record
			if strings.HasPrefix(rule.Record, "leaf_") || known[rule.Record].labels != nil {
				report("the name %s is a generator's, or is there twice", rule.Record)
			}
			labels := make(map[string]map[string]bool)
			for label := range result(rule.Expr) {
				labels[label] = nil
			}
			known[rule.Record] = series{family: rule.Record, labels: labels}
		}
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			where = alertsFile + ": " + rule.Alert
			if rule.Record != "" {
				if rule.Alert != "" || rule.Annotations != nil || rule.Labels != nil || rule.For != "" {
					report("the rule of %s is also an alert", rule.Record)
				}
				continue
			}
			if slices.Contains(alerts, rule.Alert) {
				report("there is %s twice", rule.Alert)
			}
			alerts = append(alerts, rule.Alert)
			if severity := rule.Labels["severity"]; severity != "page" && severity != "warning" {
				report("the severity is %q", severity)
			}
			labels := result(rule.Expr)
			for _, name := range []string{"summary", "description", "runbook_url"} {
				if rule.Annotations[name] == "" {
					report("it has no %s", name)
				}
			}
			for name, text := range rule.Annotations {
				if name == "runbook_url" {
					if text != runbookURL+"#"+strings.ToLower(rule.Alert) {
						report("the runbook_url is %q", text)
					}
				} else if name != "summary" && name != "description" {
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
		Annotations struct {
			List []struct{ Name, Expr, TitleFormat, TagKeys string }
		}
		Links      []struct{ URL string }
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
	if len(board.Links) != 1 || board.Links[0].URL != runbookURL {
		report("it does not lead to the runbook: %v", board.Links)
	}
	firing := false
	for _, a := range board.Annotations.List {
		where = dashboardFile + ": annotation " + a.Name
		labels := result(a.Expr)
		firing = firing || strings.Contains(a.Expr, "ALERTS")
		for _, m := range append(regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(a.TitleFormat, -1), []string{"", a.TagKeys}) {
			if !labels[m[1]] {
				report("it shows {{%s}}, which the expression does not give", m[1])
			}
		}
	}
	if !firing {
		report("no annotation shows the alerts")
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
		if family := known[name].family; (strings.HasPrefix(family, "leaf_") || strings.Contains(family, ":")) && !used[family] {
			used[family] = true
			report("nothing shows %s: neither an alert nor the dashboard", family)
		}
	}
	return problems
}
