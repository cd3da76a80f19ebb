package docs

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/tests/kit"
)

const (
	rulesFile  = "deploy/prometheus/alerts.yml"
	configFile = "deploy/prometheus/prometheus.yml"
	boardFile  = "deploy/grafana/leafbus.json"
	runbook    = "https://github.com/leafbus/leafbus/blob/main/docs/runbook.md"
)

// casesFiles are what promtool tries the rules with.
var casesFiles = []string{"deploy/prometheus/alerts_test.yml", "deploy/prometheus/pages_test.yml"}

// alert is a rule of Prometheus.
type alert struct {
	Alert, Expr, For    string
	Annotations, Labels map[string]string
	seen                bool // a case expects it
}

// alerts are those of the rules, by name.
func alerts(t *testing.T) map[string]*alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []*alert } }
	kit.Must(t, yaml.Unmarshal([]byte(read(t, rulesFile)), &file))
	found := make(map[string]*alert)
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				found[rule.Alert] = rule
			}
		}
	}
	return found
}

// promtool runs a command of promtool, which must succeed.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v (tests/install.sh installs it): %v\n%s", args, err, out)
	}
}

// The rules are as Prometheus wants them, and fire when they should. Each alert has a case in which it fires. The first
// case is health, with all metrics that the rules look at, and no alert fires there.
func TestRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", "../../"+configFile)
	promtool(t, "check", "rules", "../../"+rulesFile)

	rules := alerts(t)
	type tests struct {
		Tests []struct {
			Series []struct{ Series string } `yaml:"input_series"`
			Exprs  []struct {
				Samples []struct{ Labels string } `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	var cases tests
	for _, name := range casesFiles {
		promtool(t, "test", "rules", "../../"+name)
		var more tests
		kit.Must(t, yaml.Unmarshal([]byte(read(t, name)), &more))
		cases.Tests = append(cases.Tests, more.Tests...)
	}
	health := fmt.Sprint(cases.Tests[0].Series)
	for i, c := range cases.Tests {
		for _, expr := range c.Exprs {
			for _, sample := range expr.Samples {
				name := group(`alertname="(\w+)"`, sample.Labels)
				if rules[name] == nil || i == 0 {
					t.Errorf("case %d expects the alert %s", i, name)
					continue
				}
				rules[name].seen = true
				for _, m := range find(`\$labels\.(\w+)`, fmt.Sprint(rules[name].Annotations)) {
					if !strings.Contains(sample.Labels, " "+m[1]+"=") {
						t.Errorf("%s writes $labels.%s, and that is not among its labels %s", name, m[1], sample.Labels)
					}
				}
			}
		}
	}
	for name, rule := range rules {
		if !rule.seen {
			t.Errorf("%v have no case of %s", casesFiles, name)
		}
		for _, m := range find(`(?:^|[^:\w])((?:leaf|process)_\w+)`, rule.Expr) {
			if !strings.Contains(health, m[1]+"{") {
				t.Errorf("the case of health has no %s, at which %s looks", m[1], name)
			}
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" ||
			rule.Annotations["runbook_url"] != runbook+"#"+strings.ToLower(name) {
			t.Errorf("%s lacks a summary, a description or its place in the runbook: %v", name, rule.Annotations)
		}
	}
	for _, m := range find(`job="(\w+)"`, read(t, rulesFile)) {
		if !strings.Contains(read(t, configFile), "job_name: "+m[1]+"\n") {
			t.Errorf("%s has no job %s", configFile, m[1])
		}
	}
	address := group(`--http ADDR .*\(default "([^"]+)"\)`, kit.LeafOK(t, "serve", "--help"))
	if address == "" || !strings.Contains(read(t, configFile), "- "+address+" ") {
		t.Errorf("%s does not scrape the address that leaf serve has by default: %q", configFile, address)
	}
}

// The runbook has a section for each alert: what it means, what callers notice, what to do, how it ends. Alerts are the
// rules for Prometheus, the kinds of findings, and the events of severity alert.
func TestRunbookHasEveryAlert(t *testing.T) {
	t.Parallel()
	rules, book := alerts(t), read(t, "docs/runbook.md")
	left := make(map[string]bool) // alerts without a section
	for name := range rules {
		left[name] = true
	}
	for _, m := range find(`(?m)^\t"(\w+\.\w+)":`, read(t, "bus/generator/findings.go")) {
		left[m[1]] = true
	}
	for what, severity := range events.Types() {
		if severity != "alert" {
			continue
		}
		left[strings.TrimPrefix(what, "leaf.")] = true // as leaf events prints it
	}
	const line = `- \*\*%s\*\*: \S.*\n`
	form := fmt.Sprintf(`^\n\n`+line+line+line+line+`(\n|$)`, "Means", "Callers", "Do", "Ends")
	for _, section := range strings.Split(book, "\n### ")[1:] {
		name, _, _ := strings.Cut(section, "\n")
		if !left[name] {
			t.Errorf("%s is no alert, or has two sections", name)
		}
		delete(left, name)
		if find(form, section[len(name):]) == nil {
			t.Errorf("%s: want the lines Means, Callers, Do and Ends", name)
		}
	}
	for name := range left {
		t.Errorf("there is no section about %s", name)
	}
	help := kit.LeafOK(t, "--help") + kit.LeafOK(t, "tag", "--help") + kit.LeafOK(t, "workers", "--help")
	for _, m := range find("`leaf (?:(?:tag|workers) )?([a-z]+)", book) {
		if find(`(?m)^  `+m[1]+` `, help) == nil {
			t.Errorf("there is no command %s", m[0])
		}
	}
}
