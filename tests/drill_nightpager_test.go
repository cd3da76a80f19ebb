//go:build drills

package tests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/daemon"
)

// fast is how many times faster than at an operator's the rules of Prometheus run here: its scrapes, its windows, and how
// long something must be wrong.
const fast = 60

// prometheusEnv names another Prometheus than the one on the PATH.
const prometheusEnv = "LEAF_TEST_PROMETHEUS"

// pager is what wakes an operator: a real Prometheus with the rules of deploy. All that the operator then knows is the alert.
type pager struct {
	t        *testing.T
	url      string   // of Prometheus
	flags    []string // -s and more, of every command
	doctor   []string // flags of leaf doctor besides
	sections map[string]section
	opening  []string        // the commands that the runbook begins with
	woken    map[string]bool // by these alerts
}

// section is what the runbook says of an alert.
type section struct{ means, do, ends string }

// startPager starts Prometheus, which reads the metrics at the addresses.
func startPager(t *testing.T, addresses []string) *pager {
	t.Helper()
	dir := t.TempDir()
	ahead := regexp.MustCompile(`(\[|for: |_interval: )(\d+)([smhd])\b`)
	unit := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	for _, name := range []string{alertsFile, prometheusFile} {
		text := ahead.ReplaceAllStringFunc(topFile(t, name), func(found string) string {
			m := ahead.FindStringSubmatch(found)
			n, err := strconv.Atoi(m[2])
			must(t, err)
			return fmt.Sprintf("%s%dms", m[1], (time.Duration(n) * unit[m[3]] / fast).Milliseconds())
		})
		// As of a Prometheus that reads the metrics once a minute, the least that the rules are for. More often, a busy machine misses some.
		text = strings.Replace(text, "scrape_interval: 250ms", "scrape_interval: 1s", 1)
		text = strings.Replace(text, "(leaf_tag_refused_seconds) > 120", "(leaf_tag_refused_seconds) > 2", 1)
		text = strings.Replace(text, "(leaf_overloads_total[3000ms])", "(leaf_overloads_total[15s])", 1) // an overload counts no faster here
		text = regexp.MustCompile(`- 127\.0\.0\.1:8080 .*`).ReplaceAllString(text, "- "+strings.Join(addresses, "\n          - "))
		writeFile(t, filepath.Join(dir, filepath.Base(name)), text)
	}
	url := startPrometheus(t, dir, addresses, "--query.lookback-delta=5s")
	g := &pager{t: t, url: url, woken: make(map[string]bool)}
	t.Cleanup(func() {
		for _, name := range nights[t.Name()] {
			if !g.woken[name] {
				t.Errorf("nobody was woken by %s", name)
			}
		}
	})
	g.readRunbook(topFile(t, runbookFile))
	return g
}

// startPrometheus starts Prometheus with the configuration in a folder, until the test ends. It waits until Prometheus has read the metrics
// at all addresses, and returns where Prometheus is.
func startPrometheus(t *testing.T, dir string, addresses []string, flags ...string) (url string) {
	t.Helper()
	address := testkit.FreeAddress(t)
	p, err := daemon.Launch(daemon.Program{Name: "prometheus", Log: filepath.Join(dir, "log"), Command: exec.Command(cmp.Or(os.Getenv(prometheusEnv), "prometheus"),
		append(flags, "--config.file="+filepath.Join(dir, filepath.Base(prometheusFile)), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)...)})
	if err != nil {
		t.Fatalf("%v: make deps installs Prometheus for the drills, or name one in %s", err, prometheusEnv)
	}
	t.Cleanup(func() { _ = p.Kill() })
	url = "http://" + address
	testkit.Eventually(t, "Prometheus to see its targets", func() bool {
		if p.Ended() {
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("Prometheus ended: %s", text)
		}
		return statusOf(address, "/-/ready") == 200 &&
			strings.Count(fetch(t, "GET", url+"/api/v1/query?query=up").body, `"__name__":"up"`) == len(addresses)
	})
	return url
}

func (p *pager) readRunbook(text string) {
	p.t.Helper()
	p.sections = make(map[string]section)
	block := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(text)
	for line := range strings.Lines(block[1]) {
		command, _, _ := strings.Cut(line, "#")
		p.opening = append(p.opening, strings.TrimSpace(command))
	}
	for _, m := range regexp.MustCompile(`(?m)^### (.+)\n\n- \*\*Means\*\*: (.*)\n- \*\*Callers\*\*: .*\n- \*\*Do\*\*: (.*)\n- \*\*Ends\*\*: (.*)$`).FindAllStringSubmatch(text, -1) {
		p.sections[anchorOf(m[1])] = section{m[2], m[3], m[4]}
	}
}

// firing is an alert as Prometheus shows it.
type firing struct {
	State               string
	Labels, Annotations map[string]string
}

func (p *pager) firing() (found []firing) {
	p.t.Helper()
	var answer struct{ Data struct{ Alerts []firing } }
	must(p.t, json.Unmarshal([]byte(fetch(p.t, "GET", p.url+"/api/v1/alerts").body), &answer))
	return slices.DeleteFunc(answer.Data.Alerts, func(a firing) bool { return a.State != "firing" })
}

// call is an alert that has woken an operator, and the section of the runbook to which it leads.
type call struct {
	*pager
	name   string
	labels map[string]string
	lead   []string // the commands of the section and of those that it leads to
	reads  string   // their texts
}

// wakes waits for an alert: a rule's, by its name and some of its labels, or an event's, by its type and its key.
func (p *pager) wakes(name string, labels ...string) *call {
	p.t.Helper()
	c := &call{pager: p, name: name}
	var url string
	if strings.HasPrefix(name, "leaf.") {
		c.labels, url = map[string]string{"key": labels[0], "tag": labels[0]}, runbookURL+"#"+anchorOf(strings.TrimPrefix(name, "leaf.")) // as the dashboard's box links to it
		c.prints("leaf events --alerts --since 1h", strings.TrimPrefix(name, "leaf."), labels[0])
	} else {
		defer func() {
			if c.labels == nil {
				p.t.Logf("these alerts fire: %+v", p.firing())
			}
		}()
		testkit.Eventually(p.t, "the alert "+name+fmt.Sprint(labels), func() bool {
			for _, a := range p.firing() {
				if fits := a.Labels["alertname"] == name; fits && hasAll(a.Labels, labels) {
					c.labels, url = a.Labels, a.Annotations["runbook_url"]
					p.t.Logf("%s: %s", name, a.Annotations["summary"])
					return true
				}
			}
			return false
		})
	}
	p.woken[name] = true
	base, anchor, _ := strings.Cut(url, "#")
	if _, ok := p.sections[anchor]; base != runbookURL || !ok {
		p.t.Fatalf("the alert %s leads to %q", name, url)
	}
	c.follow(anchor, make(map[string]bool))
	return c
}

func hasAll(have map[string]string, pairs []string) bool {
	for pair := range slices.Chunk(pairs, 2) {
		if have[pair[0]] != pair[1] {
			return false
		}
	}
	return true
}

// follow collects the commands of a section and of those that it sends its reader to.
func (c *call) follow(anchor string, seen map[string]bool) {
	if seen[anchor] {
		return
	}
	seen[anchor] = true
	s := c.sections[anchor]
	c.reads += s.means + "\n" + s.do + "\n"
	for _, m := range regexp.MustCompile("`(leaf [^`]+)`").FindAllStringSubmatch(s.do, -1) {
		c.lead = append(c.lead, m[1])
	}
	links := s.do
	if links == "as there." {
		links = s.means
	}
	for _, m := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(links, -1) {
		c.follow(m[1], seen)
	}
}

// shows runs a command that the section leads to, and demands that it prints all the texts, which name the cause. TAG is the
// tag in the alert's labels. It returns c.
func (c *call) shows(command string, texts ...string) *call {
	c.t.Helper()
	if !slices.Contains(append(c.lead, c.opening...), command) {
		c.t.Errorf("the section about %s does not lead to %q, but to %q", c.name, command, c.lead)
	}
	return c.prints(strings.ReplaceAll(command, "TAG", c.labels["tag"]), texts...)
}

// with is shows for a tag that an earlier command named.
func (c *call) with(tag, command string, texts ...string) *call {
	c.t.Helper()
	c.labels = maps.Clone(c.labels)
	c.labels["tag"] = tag
	return c.shows(command, texts...)
}

func (c *call) prints(command string, texts ...string) *call {
	c.t.Helper()
	args := append(strings.Fields(command)[1:], c.flags...)
	if args[0] == "doctor" {
		args = append(args, c.doctor...)
	}
	var said string
	defer func() {
		if c.t.Failed() {
			c.t.Logf("%s of %s: want %q, it printed\n%s", command, c.name, texts, said)
		}
	}()
	testkit.Eventually(c.t, fmt.Sprintf("%s to print %q", command, texts), func() bool {
		said = c.output(args, texts)
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(said, text) })
	})
	return c
}

// output runs a command and returns all that it prints. Those that follow events go on until they have printed the texts, or
// for a second.
func (p *pager) output(args, texts []string) string {
	p.t.Helper()
	var both output
	cmd := command(p.t, p.t.TempDir(), nil, args)
	cmd.Stdout, cmd.Stderr = &both, &both
	must(p.t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the exit status says that something is wrong
	}()
	if args[0] == "events" {
		enough, look := time.After(time.Second), time.NewTicker(20*time.Millisecond)
		defer look.Stop()
		for waits := true; waits; waits = waits && slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(both.String(), text) }) {
			select {
			case <-enough:
				waits = false
			case <-ended:
				waits = false
			case <-look.C:
			}
		}
		_ = cmd.Process.Kill() // it may have ended
	}
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		p.t.Errorf("leaf %v has not ended", args)
	}
	return both.String()
}

// says demands that the section, or one that it leads to, has the words.
func (c *call) says(words ...string) *call {
	c.t.Helper()
	for _, w := range words {
		if !strings.Contains(c.reads, w) {
			c.t.Errorf("the section about %s does not say %q", c.name, w)
		}
	}
	return c
}

// does runs a command of the section that ends the alert, with what stands for its words in capitals. It must succeed.
func (c *call) does(command string, words ...string) {
	c.t.Helper()
	if !slices.Contains(c.lead, command) {
		c.t.Errorf("the section about %s does not lead to %q, but to %q", c.name, command, c.lead)
	}
	command = strings.NewReplacer(words...).Replace(command)
	testkit.Eventually(c.t, command+" to succeed", func() bool { return leaf(c.t, append(strings.Fields(command)[1:], c.flags...)...).status == 0 })
}

// ends waits until the alert is over: a rule's when Prometheus does not raise it, an event's with the event that the section
// names.
func (c *call) ends() {
	c.t.Helper()
	if !strings.HasPrefix(c.name, "leaf.") {
		testkit.Eventually(c.t, "the end of "+c.name, func() bool {
			return !slices.ContainsFunc(c.firing(), func(a firing) bool { return maps.Equal(a.Labels, c.labels) })
		})
		return
	}
	m := regexp.MustCompile("`([a-z]+\\.recovered)`").FindStringSubmatch(c.sections[anchorOf(strings.TrimPrefix(c.name, "leaf."))].ends)
	if m == nil {
		c.t.Fatalf("the section about %s names no event that ends it", c.name)
	}
	c.prints("leaf events --since 1h", m[1], c.labels["key"])
}

// board demands that the dashboard of a generator shows the texts in one of its boxes.
func (p *pager) board(face string, texts ...string) {
	p.t.Helper()
	var shown string
	defer func() {
		if p.t.Failed() {
			p.t.Logf("want %q, the dashboard has %s", texts, shown)
		}
	}()
	testkit.Eventually(p.t, fmt.Sprintf("the dashboard to show %q", texts), func() bool {
		shown = fetch(p.t, "GET", "http://"+face+"/dashboard/feed").body + fetch(p.t, "GET", "http://"+face+"/dashboard/overview").body
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(shown, text) })
	})
}
