package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// pages returns the names of the pages that users read.
func pages(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("../docs/*.md")
	must(t, err)
	found := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
	for _, doc := range docs {
		found = append(found, "docs/"+filepath.Base(doc))
	}
	return found
}

// anchors returns the anchors that GitHub gives the headings of a page.
func anchors(text string) []string {
	var found []string
	for _, m := range regexp.MustCompile("(?m)^#+ (.*)$").FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found = append(found, strings.ReplaceAll(anchor, " ", "-"))
	}
	return found
}

// Each link between the pages leads to a file, and to a heading in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	links := 0
	for _, page := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(topFile(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(page), file)
			if file == "" {
				target = page
			}
			if _, err := os.Stat("../" + target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(topFile(t, target)), anchor) {
				t.Errorf("%s links to %s, and that has no such heading", page, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

// The README is short. What is longer is a page of docs.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	text := topFile(t, "README.md")
	if n := strings.Count(text, "\n"); n > 180 {
		t.Errorf("the README has %d lines, at most 180 are allowed", n)
	}
	for _, command := range []string{"go run ./cmd/leaf serve --tag order", "make test"} {
		if !strings.Contains(text, command) {
			t.Errorf("the README lacks %s", command)
		}
	}
}

// elsewhere matches commands that the test cannot run, because they need other machines, servers, containers or accounts, or are the tests
// themselves. Those of the nats CLI that are no requests need that program, and those that restore a backup need nats-server.
var elsewhere = regexp.MustCompile(`^(git|cd|make|docker|for|done|ssh|go install|go run ./tests|nats stream|nats backup|nats kv|umask|nats-server|mv|kill|test)\b|^LEAF_TEST_|/leaf1:|host:3306|h1:2181|10\.0\.0\.5|\$servers|--wait-redundant|--mysql-file|\.conf|\.pem|0\.0\.0\.0`)

// commandsOf returns the commands of a page that the test can run, each with its comment. A file of tags is applied.
func commandsOf(t *testing.T, page string) (commands [][2]string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?ms)^ *```(sh|yaml)\n(.*?)^ *```$").FindAllStringSubmatch(topFile(t, page), -1) {
		if block[1] == "yaml" {
			commands = append(commands, [2]string{"leaf tag apply -f - <<'END'\n" + block[2] + "END"})
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", "")) {
			command, comment, _ := strings.Cut(strings.TrimSpace(line), " #")
			command = strings.TrimSpace(command)
			if command != "" && !strings.HasPrefix(command, "#") && !elsewhere.MatchString(command) {
				commands = append(commands, [2]string{command, strings.TrimSpace(comment)})
			}
		}
	}
	return commands
}

// linked returns the README, and the pages of docs in the order in which it links to them. A newcomer reads them in this order.
func linked(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md"}
	for _, m := range regexp.MustCompile(`\]\((docs/[a-z]+\.md)`).FindAllStringSubmatch(topFile(t, "README.md"), -1) {
		if !slices.Contains(found, m[1]) {
			found = append(found, m[1])
		}
	}
	return found
}

// The commands of these pages are for another installation than that of the README. TestDrillLeafMove runs those of moving.md.
var apart = []string{"docs/mysql.md", "docs/zookeeper.md", "docs/docker.md", "docs/moving.md"}

// A newcomer starts one installation, and runs every command block of README and docs there. Each one works.
func TestCommandsOfThePages(t *testing.T) {
	t.Parallel()
	there(t, "bash", "curl")
	least := map[string]int{"README.md": 17, "docs/rules.md": 14, "docs/security.md": 4, "docs/requests.md": 7, "docs/clients.md": 1, "docs/http.md": 4,
		"docs/cluster.md": 5, "docs/events.md": 2, "docs/runbook.md": 2, "docs/doctor.md": 2, "docs/audit.md": 10, "docs/speed.md": 1}
	s, order := newShell(t), linked(t)
	for _, page := range order {
		if slices.Contains(apart, page) {
			continue
		}
		commands := commandsOf(t, page)
		if len(commands) < least[page] {
			t.Errorf("%s: only %d commands can be run", page, len(commands))
		}
		for _, c := range commands {
			s.page = page
			s.show(c[1], s.run(c[0]))
		}
	}
	s.interrupt()
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "docs/") && !slices.Contains(order, page) && len(commandsOf(t, page)) > 0 {
			t.Errorf("the README has no link to %s, so its commands were not run", page)
		}
	}
}

// The commands of docs/mysql.md that need no database work on a new installation.
func TestCommandsOfMySQL(t *testing.T) {
	t.Parallel()
	there(t, "bash")
	commands := commandsOf(t, "docs/mysql.md")
	if len(commands) == 0 {
		t.Error("none can be run")
	}
	s := newShell(t)
	for _, c := range commands {
		s.run(c[0])
	}
}

// In README, docs and the help, a name of a tag stands for one kind of tag: the kind is for life, so a second one would be refused.
func TestOneNameOneKind(t *testing.T) {
	t.Parallel()
	kinds := make(map[string]string)
	check := func(where, text string) {
		for _, m := range regexp.MustCompile("leaf tag add ([a-z][a-z.]*)([^|`#\n]*)").FindAllStringSubmatch(text, -1) {
			name, kind := m[1], "trend"
			if strings.Contains(m[2], "--order strict") {
				kind = "strict"
			} else if o := regexp.MustCompile(`--opaque(=\w+)?`).FindString(m[2]); o != "" {
				kind = strings.TrimSuffix(o, "=63")
			}
			if before, known := kinds[name]; known && before != kind {
				t.Errorf("%s: %s is %s here, and %s elsewhere", where, name, kind, before)
			}
			kinds[name] = kind
		}
	}
	for _, page := range pages(t) {
		check(page, topFile(t, page))
	}
	for _, command := range []string{"add", "set", "reveal", "apply"} {
		check("leaf tag "+command+" --help", leafOK(t, "tag", command, "--help"))
	}
	if len(kinds) < 10 {
		t.Errorf("only these tags were found: %v", kinds)
	}
}

// shell runs the commands of pages.
type shell struct {
	t         *testing.T
	generator *generator
	env       []string
	dir       string
	page      string
	followers []*process // leaf events
}

// newShell starts what each page begins with: leaf serve --tag order.
func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir()}
	listen, http := testkit.FreeAddress(t), testkit.FreeAddress(t)
	s.generator = ready(t, s.dir, start(t, command(t, s.dir, nil, []string{"serve", "--tag", "order", "--listen", listen, "--http", http})))
	s.env = []string{"NATS_URL=" + s.generator.url, "PATH=" + leafBin + ":" + os.Getenv("PATH")}
	return s
}

// shown matches a comment that says what its command prints.
var shown = regexp.MustCompile(`^(.*for example )?([0-9]+(?:-[0-9]+)?|\{[^…]*\})$`)

// show compares what a command printed with its comment. After "for example" only the number of IDs counts.
func (s *shell) show(comment, out string) {
	s.t.Helper()
	m := shown.FindStringSubmatch(comment)
	if m == nil {
		return
	}
	if out = strings.TrimSpace(out); m[1] == "" && out != m[2] || m[1] != "" && howMany(s.t, out) != howMany(s.t, m[2]) {
		s.t.Errorf("%s: a command prints %q, and the comment says %q", s.page, out, comment)
	}
}

// howMany counts the IDs of a reply, as text or JSON.
func howMany(t *testing.T, reply string) (n int64) {
	t.Helper()
	if strings.HasPrefix(reply, "{") {
		var ranges []string
		for _, r := range parse[struct {
			Count  int64
			Ranges []struct{ First, Last string }
		}](t, []byte(reply)).Ranges {
			ranges = append(ranges, r.First+"-"+r.Last)
		}
		reply = strings.Join(ranges, "\n")
	}
	ranges, err := bus.ParseReply([]byte(reply))
	must(t, err)
	for _, r := range ranges {
		n += r.Len()
	}
	return n
}

// interrupt presses Ctrl-C where leaf events still runs. It ran until now, and prints the events of the last hour first.
func (s *shell) interrupt() {
	s.t.Helper()
	for _, p := range s.followers {
		if strings.Contains(strings.Join(p.cmd.Args, " "), "--since 1h") && !strings.Contains(strings.Join(p.cmd.Args, " "), "--alerts") {
			testkit.Eventually(s.t, "the start of the generator among the events", func() bool { return strings.Contains(p.stdout.String(), "node.started") })
		}
		p.signal(os.Interrupt)
		if status := p.wait(patience); status != 0 {
			s.t.Errorf("%v: exit status %d after Ctrl-C: %s", p.cmd.Args, status, p.stderr.String())
		}
	}
}

// run runs one command, and returns what it prints.
func (s *shell) run(line string) string {
	s.t.Helper()
	line = strings.NewReplacer(
		"go run ./cmd/leaf", "leaf",
		"leaf bench", "leaf bench --duration 300ms", // it takes 10 s by default
		"127.0.0.1:4222", strings.TrimPrefix(s.generator.url, "nats://"),
		"http://127.0.0.1:8080", s.generator.http,
	).Replace(line)
	words := strings.Fields(line)
	switch {
	case strings.HasPrefix(line, "leaf serve --tag order"): // it runs already
		return ""
	case strings.HasPrefix(line, "leaf serve"):
		ready(s.t, s.dir, start(s.t, s.script("exec "+line)))
		return ""
	case strings.HasPrefix(line, "leaf events"): // in a terminal of its own
		s.followers = append(s.followers, start(s.t, s.script("exec "+line)))
		return ""
	case words[0] == "nats": // the test sends what the nats CLI would
		if words[1] != "request" && words[1] != "req" {
			s.t.Fatalf("%s: the test cannot run %s", s.page, line)
		}
		body := ""
		if m := regexp.MustCompile(`'([^']*)'`).FindStringSubmatch(line); m != nil {
			body = m[1]
		} else if len(words) > 3 {
			body = words[3]
		}
		msg := ask(s.t, connect(s.t, s.generator.url), words[2], body)
		granted(s.t, msg)
		return string(msg.Data)
	}
	out, err := s.script(line).Output()
	if err != nil {
		var stderr []byte
		if exit, ok := err.(*exec.ExitError); ok {
			stderr = exit.Stderr
		}
		s.t.Errorf("%s: %s: %v: %s%s", s.page, line, err, out, stderr)
	}
	return string(out)
}

// script is a line for bash, in the folder of the generator.
func (s *shell) script(line string) *exec.Cmd {
	script := exec.Command("bash", "-o", "pipefail", "-c", line)
	script.Dir, script.Env = s.dir, append(command(s.t, s.dir, nil, nil).Env, s.env...)
	return script
}
