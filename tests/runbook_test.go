package tests

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/bus"
)

const (
	runbookFile = "docs/runbook.md"
	// runbookURL is where the rules and the board of Grafana say that the runbook is.
	runbookURL = "https://github.com/leafbus/leafbus/blob/main/docs/runbook.md"
)

// The runbook has a section for each alert: what it means, what callers notice, what to do, how it
// ends. Alerts are the rules for Prometheus, and the events of severity alert.
func TestRunbookHasEveryAlert(t *testing.T) {
	t.Parallel()
	files := map[string]string{runbookFile: topFile(t, runbookFile), alertsFile: topFile(t, alertsFile)}
	help := leafOK(t, "--help")
	for _, cmd := range []string{"tag", "workers"} {
		help += leafOK(t, cmd, "--help")
	}
	for _, problem := range checkRunbook(files, help) {
		t.Error(problem)
	}
	for _, m := range []struct{ file, old, new, found string }{
		{runbookFile, "### LeafSlow\n", "### LeafQuick\n", "no section about LeafSlow"},
		{runbookFile, "### LeafSlow\n", "### LeafQuick\n", "there is no alert LeafQuick"},
		{runbookFile, "### segment.starved\n", "", "no section about segment.starved"},
		{runbookFile, "### segment.starved\n", "### Leaf.Slow\n", "at one place"},
		{runbookFile, "### LeafRestarts\n", "### LeafSlow\n", "LeafSlow has two sections"},
		{alertsFile, "alert: LeafSlow", "alert: LeafSlower", "no section about LeafSlower"},
		{runbookFile, "- **Ends**: below 80 %.", "", "LeafFilesRunOut: want the lines"},
		{runbookFile, "- **Callers**: notice nothing: the others", "- **Callers**: ", "LeafGeneratorDown: want the lines"},
		{runbookFile, "`leaf nodes` names them", "`leaf notes` names them", "leaf notes"},
		{runbookFile, "`leaf tag advance --all`", "`leaf tag advances --all`", "leaf tag advances"},
		{runbookFile, "(#leafslow)", "(#slow)", "#slow"},
		{alertsFile, "leaf.node.lost|", "", "leaf.node.lost"},
	} {
		broken := map[string]string{runbookFile: files[runbookFile], alertsFile: files[alertsFile]}
		broken[m.file] = strings.Replace(files[m.file], m.old, m.new, 1)
		if broken[m.file] == files[m.file] {
			t.Errorf("%s has no %q to break", m.file, m.old)
		} else if found := fmt.Sprint(checkRunbook(broken, help)); !strings.Contains(found, m.found) {
			t.Errorf("with %q in %s, want a problem that says %q, found %s", m.new, m.file, m.found, found)
		}
	}
}

// ruled are the alert events that have a rule of their own, so LeafAlertEvent leaves them out.
var ruled = map[string]string{
	"leaf.node.lost":             "LeafGeneratorLost",
	"leaf.segment.refill_failed": "LeafRefillsFail",
	"leaf.segment.regressed":     "LeafIDsInDoubt",
}

// checkRunbook returns what is wrong with the runbook, beside the rules, the events and the help of the program.
func checkRunbook(files map[string]string, help string) (problems []string) {
	report := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(files[alertsFile]), &rules); err != nil {
		return []string{err.Error()}
	}
	exprs := make(map[string]string) // by alert
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				exprs[rule.Alert] = rule.Expr
			}
		}
	}
	for what, severity := range bus.EventTypes() {
		if severity != "alert" {
			continue
		}
		exprs[strings.TrimPrefix(what, "leaf.")] = "" // as leaf events prints it
		rule, own := ruled[what]
		if covered := !regexp.MustCompile(`[|"]` + regexp.QuoteMeta(what) + `[|"]`).MatchString(exprs["LeafAlertEvent"]); covered == own {
			report("the event %s must raise LeafAlertEvent or a rule of its own, and not both", what)
		}
		if _, ok := exprs[rule]; own && !ok {
			report("the event %s has no rule %s", what, rule)
		}
	}

	sections := regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatchIndex(files[runbookFile], -1)
	var names, anchors []string
	for i, at := range sections {
		name := files[runbookFile][at[2]:at[3]]
		names, anchors = append(names, name), append(anchors, anchorOf(name))
		if _, ok := exprs[name]; !ok {
			report("there is no alert %s", name)
		}
		if slices.Contains(names[:i], name) {
			report("%s has two sections", name)
		} else if slices.Contains(anchors[:i], anchorOf(name)) {
			report("%s and another section are at one place, #%s", name, anchorOf(name))
		}
		end := len(files[runbookFile])
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		body, _, _ := strings.Cut(files[runbookFile][at[1]:end], "\n## ")
		if !regexp.MustCompile(`^\n\n- \*\*Means\*\*: \S.*\n- \*\*Callers\*\*: \S.*\n- \*\*Do\*\*: \S.*\n- \*\*Ends\*\*: \S.*\n$`).MatchString(strings.TrimRight(body, "\n") + "\n") {
			report("%s: want the lines Means, Callers, Do and Ends", name)
		}
	}
	for name := range exprs {
		if !slices.Contains(names, name) {
			report("there is no section about %s", name)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(files[runbookFile], -1) {
		if !slices.Contains(anchors, m[1]) {
			report("a link leads to #%s, which is not there", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`leaf ((?:tag |workers )?[a-z]+)").FindAllStringSubmatch(files[runbookFile], -1) {
		words := strings.Fields(m[1])
		if !regexp.MustCompile(`(?m)^  ` + words[len(words)-1] + ` `).MatchString(help) {
			report("there is no command leaf %s", m[1])
		}
	}
	return problems
}

// anchorOf is how GitHub names the place of a heading of one word.
func anchorOf(heading string) string {
	return strings.ReplaceAll(strings.ToLower(heading), ".", "")
}
