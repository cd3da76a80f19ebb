package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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
var elsewhere = regexp.MustCompile(`^(git|cd|make|docker|for|done|ssh|go install|go run ./tests|nats stream|nats backup|nats-server|mv|kill|test)\b|^LEAF_TEST_|/leaf1:|host:3306|h1:2181|\$servers|--mysql-file|\.conf|\.pem|0\.0\.0\.0`)

// commandsOf returns the commands of a page that the test can run, each with its comment.
func commandsOf(t *testing.T, page string) (commands [][2]string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(topFile(t, page), -1) {
		for line := range strings.Lines(block[1]) {
			command, comment, _ := strings.Cut(strings.TrimSpace(line), " #")
			command = strings.TrimSpace(command)
			if command != "" && !strings.HasPrefix(command, "#") && !elsewhere.MatchString(command) {
				commands = append(commands, [2]string{command, strings.TrimSpace(comment)})
			}
		}
	}
	return commands
}

// Each command block of these pages works, in its order, on an installation that is new at the top of the page.
func TestCommandsOfThePages(t *testing.T) {
	t.Parallel()
	there(t, "bash", "curl")
	least := map[string]int{"README.md": 12, "docs/requests.md": 6, "docs/rules.md": 10, "docs/audit.md": 9, "docs/http.md": 4,
		"docs/clients.md": 1, "docs/cluster.md": 5, "docs/mysql.md": 1, "docs/speed.md": 1}
	for page, n := range least {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			commands := commandsOf(t, page)
			if len(commands) < n {
				t.Errorf("only %d commands can be run", len(commands))
			}
			s := newShell(t)
			for _, c := range commands {
				command, want := c[0], c[1]
				out := s.run(command)
				// A comment that begins with a number or with JSON is what the command prints.
				if page != "docs/http.md" && regexp.MustCompile(`^([0-9]+(-[0-9]+)?|\{[^…]*\})$`).MatchString(want) && len(want) != len("2124116981257252889") && strings.TrimSpace(out) != want {
					t.Errorf("%s: it prints %q, and the page says %q", command, out, want)
				}
			}
		})
	}
}

// shell runs the commands of a page.
type shell struct {
	t         *testing.T
	generator *generator
	env       []string
	dir       string
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
		script := exec.Command("bash", "-c", "exec "+line)
		script.Dir, script.Env = s.dir, append(command(s.t, s.dir, nil, nil).Env, s.env...)
		ready(s.t, s.dir, start(s.t, script))
		return ""
	case words[0] == "nats": // the test sends what the nats CLI would
		if words[1] != "request" && words[1] != "req" {
			s.t.Fatalf("the test cannot run %s", line)
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
	script := exec.Command("bash", "-o", "pipefail", "-c", line)
	script.Dir, script.Env = s.dir, append(command(s.t, s.dir, nil, nil).Env, s.env...)
	out, err := script.Output()
	if err != nil {
		var stderr []byte
		if exit, ok := err.(*exec.ExitError); ok {
			stderr = exit.Stderr
		}
		s.t.Errorf("%s: %v: %s%s", line, err, out, stderr)
	}
	return string(out)
}
