package docs

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// series are the metrics of real generators: the values of each label, by name.
type series map[string]map[string]map[string]bool

// metrics are the series of generators, with the type and the description of each family.
type metrics struct {
	series
	kind, help map[string]string
}

// get returns what a generator answers at a path.
func get(t *testing.T, g *kit.Generator, path string) string {
	t.Helper()
	answer, err := http.Get(g.HTTP + path)
	kit.Must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	kit.Must(t, err)
	return string(body)
}

var label = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)

// scrape adds what a generator publishes now.
func (s metrics) scrape(t *testing.T, g *kit.Generator) {
	t.Helper()
	text := get(t, g, "/metrics")
	for _, m := range find(`(?m)^(\w+)(?:\{(.*)\})? \S+$`, text) {
		if s.series[m[1]] == nil {
			s.series[m[1]] = map[string]map[string]bool{"job": {}, "instance": {}} // which Prometheus adds
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if s.series[m[1]][l[1]] == nil {
				s.series[m[1]][l[1]] = make(map[string]bool)
			}
			s.series[m[1]][l[1]][l[2]] = true
		}
	}
	for _, m := range find(`(?m)^# (HELP|TYPE) (\w+) (.*)$`, text) {
		map[string]map[string]string{"HELP": s.help, "TYPE": s.kind}[m[1]][m[2]] = m[3]
	}
}

var (
	once  sync.Once
	known metrics
)

// published is what generators publish when all is well, and when the store is gone.
func published(t *testing.T) metrics {
	t.Helper()
	once.Do(func() { known = publish(t) })
	return known
}

func publish(t *testing.T) metrics {
	t.Helper()
	first := kit.Embed(t, "--tag", "order", "--http", "127.0.0.1:0")
	// Failing refills are a finding of their own only until the store is one, a second later: no request waits that long.
	second := kit.Join(t, first.URL, "--http", "127.0.0.1:0", "--max-wait", "100ms")
	s := metrics{make(series), make(map[string]string), make(map[string]string)}
	testkit.Eventually(t, "the clock of another generator, and a tag in use", func() bool {
		get(t, second, "/api/segment/get/order?count=900")
		s.scrape(t, second)
		return s.series["leaf_clock_offset_seconds"] != nil && s.series["leaf_tag_lasts_seconds"] != nil
	})
	bad, err := promlint.New(strings.NewReader(get(t, second, "/metrics"))).Lint()
	if err != nil || len(bad) > 0 {
		t.Errorf("Prometheus advises against these names: %v %v", bad, err)
	}
	kit.LeafOK(t, "tag", "add", "invoice", "--order", "strict", "-s", first.URL)
	get(t, second, "/api/segment/get/invoice")
	kit.Must(t, first.Kill())
	testkit.Eventually(t, "refills that fail of tags that are used", func() bool {
		get(t, second, "/api/segment/get/order?count=900000")
		get(t, second, "/api/segment/get/invoice")
		s.scrape(t, second)
		// A strict tag that cannot be written pages as a tag whose IDs have run out.
		found := s.series["leaf_finding"]
		return found["kind"]["registry.unavailable"] && found["kind"]["worker.missing"] &&
			found["severity"]["critical"] && found["severity"]["problem"] &&
			strings.Contains(get(t, second, "/metrics"), "\nleaf_failing_remaining_seconds 0\n")
	})
	for what := range events.Types() { // which of them came depends on what failed first
		s.series["leaf_finding"]["kind"][strings.TrimPrefix(what, "leaf.")] = true
	}
	return s
}

// A name that is misspelled in rules or on the board of Grafana finds nothing, and an alert that finds nothing is
// silent. The rules fire on the series of their cases, so these are compared.
func TestDeployFilesKnowTheMetrics(t *testing.T) {
	t.Parallel()
	known := published(t).series
	free := []string{"job", "instance", "tag", "node", "version", "go_version"} // values are the users'
	board := strings.ReplaceAll(read(t, boardFile), `\"`, `"`)
	files := map[string]string{boardFile: board}
	for _, name := range casesFiles {
		files[name] = read(t, name)
	}
	for where, text := range files {
		for _, m := range find(`(?:^|[^:\w])((?:leaf|process)_\w+)(?:\{([^}]*)\})?`, text) {
			labels, ok := known[m[1]]
			if !ok {
				t.Errorf("%s: there is no metric %s", where, m[1])
				continue
			}
			all := label.FindAllStringSubmatch(m[2], -1)
			if where != boardFile && len(all) != len(labels) {
				t.Errorf("%s: %s has the labels %v", where, m[1], slices.Sorted(maps.Keys(labels)))
			}
			for _, l := range all {
				values, has := labels[l[1]]
				for value := range strings.SplitSeq(l[2], "|") {
					if !has || !slices.Contains(free, l[1]) && !values[value] {
						t.Errorf("%s: no %s has %s=%q", where, m[1], l[1], value)
					}
				}
			}
		}
	}
	shown := board + read(t, rulesFile)
	for name := range known {
		family := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if strings.HasPrefix(name, "leaf_") && find(`\b`+family+`(_bucket|_sum|_count)?\b`, shown) == nil {
			t.Errorf("nothing shows %s: neither an alert nor the board", name)
		}
	}
}

// The board of Grafana leads to the runbook and shows the alerts. Its panels have titles and descriptions, expressions
// that Prometheus can read, and legends with labels that those give.
func TestBoard(t *testing.T) {
	t.Parallel()
	var board struct {
		Annotations struct{ List []struct{ Expr string } }
		Links       []struct{ URL string }
		Panels      []struct {
			ID                       int
			Type, Title, Description string
			Targets                  []struct{ Expr, LegendFormat string }
		}
	}
	kit.Must(t, json.Unmarshal([]byte(read(t, boardFile)), &board))
	alerts := board.Annotations.List[0].Expr
	if len(board.Links) != 1 || board.Links[0].URL != runbook || !strings.Contains(alerts, "ALERTS{") {
		t.Errorf("it does not lead to the runbook, or does not show the alerts: %v %s", board.Links, alerts)
	}
	exprs := []string{alerts}
	ids := make(map[int]bool)
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %d, %q: want a number of its own, a title, a description and an expression", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			exprs = append(exprs, strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
			for _, m := range find(`\{\{(\w+)\}\}`, target.LegendFormat) {
				if m[1] != "instance" && find(`by \([^)]*\b`+m[1]+`\b`, target.Expr) == nil {
					t.Errorf("%q: the legend has %s, which the expression does not give", p.Title, m[0])
				}
			}
		}
	}
	rules := "groups:\n- name: board\n  rules:\n"
	for i, expr := range exprs {
		rules += fmt.Sprintf("  - {record: 'board:%d', expr: %q}\n", i, expr)
	}
	file := filepath.Join(t.TempDir(), "board.yml")
	kit.Must(t, os.WriteFile(file, []byte(rules), 0o600))
	promtool(t, "check", "rules", file)
}
