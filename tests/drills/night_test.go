//go:build drills

package drills

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// fast is how many times faster than at an operator's the rules of Prometheus run in most drills: their windows, and
// how long something must be wrong.
const fast = 60

// prometheusEnv names another Prometheus than the one on the PATH.
const prometheusEnv = "LEAF_TEST_PROMETHEUS"

// night is an installation of three generators and what wakes its operator: a real Prometheus with the rules of deploy.
type night struct {
	t          *testing.T
	prometheus string // its URL
	url        string
	all        []*kit.Generator
	runbook    map[string]string // the sections, by their names
}

func newNight(t *testing.T, fast time.Duration, args ...string) *night {
	t.Helper()
	n := &night{t: t, url: natskit.Start(t).ClientURL(), prometheus: "http://" + testkit.FreeAddress(t), runbook: make(map[string]string)}
	var targets []string
	for i := range 3 {
		address := testkit.FreeAddress(t)
		targets = append(targets, address)
		n.all = append(n.all, kit.Join(t, n.url, append(args, "--node", fmt.Sprint("gen_", i+1), "--http", address)...))
	}
	for _, section := range strings.Split(page(t, "docs/runbook.md"), "\n### ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		n.runbook[name] = text
	}
	dir := t.TempDir()
	for _, name := range []string{"alerts.yml", "prometheus.yml"} {
		text := faster(t, page(t, "deploy/prometheus/"+name), fast)
		text = regexp.MustCompile(`- 127\.0\.0\.1:8080 .*`).ReplaceAllString(text, "- "+strings.Join(targets, "\n          - "))
		writeFile(t, filepath.Join(dir, name), text)
	}
	p, err := kit.Launch(kit.Program{Name: "prometheus", Log: filepath.Join(dir, "log"), Command: exec.Command(
		cmp.Or(os.Getenv(prometheusEnv), "prometheus"), fmt.Sprint("--query.lookback-delta=", 5*time.Minute/fast), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+strings.TrimPrefix(n.prometheus, "http://"))})
	if err != nil {
		t.Fatalf("%v: make drills installs Prometheus, or name one in %s", err, prometheusEnv)
	}
	t.Cleanup(p.Close)
	testkit.Eventually(t, "Prometheus sees its targets", func() bool {
		return strings.Count(get(n.prometheus+"/api/v1/query?query=up"), `"__name__":"up"`) == len(targets)
	})
	return n
}

// faster shortens the times of Prometheus' files.
func faster(t *testing.T, text string, fast time.Duration) string {
	t.Helper()
	times := regexp.MustCompile(`(\[|for: |_interval: )(\d+)([smhd])\b`)
	unit := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	return times.ReplaceAllStringFunc(text, func(found string) string {
		m := times.FindStringSubmatch(found)
		n, err := strconv.Atoi(m[2])
		kit.Must(t, err)
		return fmt.Sprintf("%s%dms", m[1], (time.Duration(n) * unit[m[3]] / fast).Milliseconds())
	})
}

// get returns the body at a URL; empty: there is no answer.
func get(url string) string {
	answer, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body) // a part of it is not what is waited for
	return string(body)
}

// firing are the labels and annotations of an alert that fires; nil: it does not.
func (n *night) firing(name string) map[string]string {
	var answer struct {
		Data struct {
			Alerts []struct {
				State               string
				Labels, Annotations map[string]string
			}
		}
	}
	_ = json.Unmarshal([]byte(get(n.prometheus+"/api/v1/alerts")), &answer) // without an answer nothing fires
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" && a.Labels["alertname"] == name {
			return a.Annotations
		}
	}
	return nil
}

// wakes waits for an alert of a rule. The runbook must have its section, which leads to the command, and the command
// must print the texts, which name the cause.
func (n *night) wakes(name, command string, texts ...string) {
	n.t.Helper()
	var annotations map[string]string
	testkit.Eventually(n.t, "the alert "+name, func() bool {
		annotations = n.firing(name)
		return annotations != nil
	})
	if _, anchor, _ := strings.Cut(annotations["runbook_url"], "#"); anchor != strings.ToLower(name) {
		n.t.Errorf("%s leads to %s", name, annotations["runbook_url"])
	}
	if section := n.runbook[name]; !strings.Contains(section, "`"+command+"`") && !slices.Contains(opening, command) {
		n.t.Errorf("the section about %s does not lead to %q: %s", name, command, section)
	}
	n.shows(command, texts...)
}

// opening are the commands with which the runbook begins.
var opening = []string{"leaf doctor", "leaf events --alerts --since 1h"}

// shows runs a command until it prints all the texts.
func (n *night) shows(command string, texts ...string) {
	n.t.Helper()
	args := append(strings.Fields(command)[1:], "-s", n.url)
	var r kit.Result
	testkit.Eventually(n.t, fmt.Sprintf("%s prints %q", command, texts), func() bool {
		p := kit.Start(n.t, kit.Command(n.t, n.t.TempDir(), nil, args...))
		if args[0] == "events" { // it goes on until it is stopped
			time.Sleep(time.Second)
			p.Close()
		}
		r = kit.Finish(n.t, p)
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(r.Stdout+r.Stderr, text) })
	})
}

// end waits until alerts do not fire any more.
func (n *night) end(names ...string) {
	n.t.Helper()
	for _, name := range names {
		testkit.Eventually(n.t, "the end of "+name, func() bool { return n.firing(name) == nil })
	}
}

// The database dies. Each alert leads its operator over the runbook to a command that names the cause.
func TestDrillNightDatabase(t *testing.T) {
	db := kit.NewMariaDB(t)
	dsn, err := db.Database()
	kit.Must(t, err)
	n := newNight(t, fast, "--mysql", dsn, "--max-step", "2000", "--max-wait", "300ms", "--tag", "order:1000", "--tag", "coupon:1000")
	set := callers.New(t, callers.Config{Tags: []string{"order", "coupon"}, Batch: 20, Deadline: time.Second, MayFail: callers.AnyFailure}).
		Raw(n.url).Take(n.url)
	set.More(500)
	kit.Must(t, db.Kill())
	at := db.Addr()
	n.wakes("LeafFinding", "leaf doctor", "database.unavailable", at)
	n.wakes("LeafCannotServe", "leaf nodes", "gen_1: store: ", at)
	n.wakes("LeafManyRequestsRefused", "leaf nodes", "gen_1: store: ", at)
	n.shows("leaf events --alerts --since 1h", "segment.starved", at)
	n.shows("leaf events --alerts --since 1h", "segment.refill_failed", "order")
	if shown := get(n.all[0].HTTP + "/dashboard/overview"); !strings.Contains(shown, `"kind":"database.unavailable"`) || !strings.Contains(shown, at) {
		t.Errorf("the dashboard does not show the cause: %s", shown)
	}
	kit.Must(t, db.Run())
	set.More(500)
	n.end("LeafFinding", "LeafCannotServe", "LeafManyRequestsRefused")
	set.Stop()
}

// An outage of 42 s, at the pace of an operator's Prometheus, pages before it is over.
func TestDrillOutagePages(t *testing.T) {
	db := kit.NewMariaDB(t)
	dsn, err := db.Database()
	kit.Must(t, err)
	n := newNight(t, 1, "--mysql", dsn, "--max-step", "1000", "--tag", "order:1000")
	set := callers.New(t, callers.Config{Tags: []string{"order"}, Batch: 20, Deadline: 4 * time.Second, MayFail: callers.AnyFailure}).Raw(n.url)
	set.More(500)
	kit.Must(t, db.Kill())
	begin := time.Now()
	for n.firing("LeafManyRequestsRefused") == nil {
		if time.Since(begin) > 42*time.Second {
			t.Fatal("the outage is over, and nobody was paged")
		}
		time.Sleep(time.Second)
	}
	t.Logf("it pages %v after the death of the database", time.Since(begin).Round(time.Second))
	kit.Must(t, db.Run())
	set.More(500)
	set.Stop()
}

// A generator is killed, one is killed again and again, and then all are.
func TestDrillNightGenerators(t *testing.T) {
	n := newNight(t, fast, "--tag", "order")
	n.all[1].Close()
	n.wakes("LeafFinding", "leaf doctor", "node.lost", "gen_2")
	n.shows("leaf nodes", "gen_2", "lost, last heard")
	n.wakes("LeafGeneratorDown", "leaf nodes", "gen_2")
	n.shows("leaf events --alerts --since 1h", "node.lost", "gen_2")
	n.all[1] = n.all[1].Again()
	n.end("LeafFinding", "LeafGeneratorDown")
	for range 3 {
		n.all[2].Close()
		n.all[2] = n.all[2].Again()
	}
	n.wakes("LeafRestarts", "leaf events --since 1h", "node.started", "gen_3")
	for _, g := range n.all {
		g.Close()
	}
	n.wakes("LeafNoGenerator", "leaf nodes", "no generator answers")
	for _, g := range n.all {
		g.Again()
	}
	n.end("LeafNoGenerator")
}
