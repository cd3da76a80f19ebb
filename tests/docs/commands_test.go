package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// elsewhere matches commands that need other machines, servers, programs, containers or accounts, or are tests.
var elsewhere = regexp.MustCompile(`^(git|cd|make|docker|for|done|ssh|go install|go run ./tests|umask|mv|kill|test)\b` +
	`|^nats-server|^nats (stream|backup|kv)|^LEAF_TEST_|/leaf1:|host:3306|h1:2181|10\.0\.0\.5|0\.0\.0\.0` +
	`|\$servers|doctor --wait|--mysql-file|\.conf|\.pem`)

// command is a line of a page, and what its comment says.
type command struct{ page, line, comment string }

// commandsOf are the commands of a page that the test can run. A file of tags is applied.
func commandsOf(t *testing.T, page string) (all []command) {
	t.Helper()
	for _, block := range find("(?ms)^ *```(sh|yaml)\n(.*?)^ *```$", read(t, page)) {
		if block[1] == "yaml" {
			all = append(all, command{page, "leaf tag apply -f - <<'END'\n" + block[2] + "END", ""})
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", "")) {
			line, comment, _ := strings.Cut(strings.TrimSpace(line), " #")
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "#") && !elsewhere.MatchString(line) {
				all = append(all, command{page, line, strings.TrimSpace(comment)})
			}
		}
	}
	return all
}

// A newcomer starts one installation, and runs every command of the README there, then those of the pages that it
// links to, in this order. Each one works, and prints what its comment says. A page about another kind of installation
// is left out; the drills run moving.md.
func TestCommandsOfThePages(t *testing.T) {
	t.Parallel()
	linked := regexp.MustCompile(`docs/[a-z]+\.md`).FindAllString(read(t, "README.md"), -1)
	commands, seen := commandsOf(t, "README.md"), []string{"docs/moving.md"}
	for _, page := range linked {
		if !slices.Contains(seen, page) {
			seen = append(seen, page)
			commands = append(commands, commandsOf(t, page)...)
		}
	}
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "docs/") && len(commandsOf(t, page)) > 0 && !slices.Contains(linked, page) {
			t.Errorf("the README has no link to %s, so its commands were not run", page)
		}
	}
	if len(commands) < 60 {
		t.Errorf("only %d commands were found", len(commands))
	}
	s := newShell(t)
	for _, c := range commands {
		s.run(c)
	}
	s.interrupt()
}

// shell is a terminal beside a generator that was started with leaf serve --tag order.
type shell struct {
	t         *testing.T
	g         *kit.Generator
	env       []string
	followers []*kit.Process // leaf events
}

func newShell(t *testing.T) *shell {
	t.Helper()
	g := kit.Embed(t, "--tag", "order", "--http", "127.0.0.1:0")
	bin := filepath.Dir(kit.Build(t, "cmd/leaf"))
	env := append(kit.Command(t, g.Dir, nil).Env, "NATS_URL="+g.URL, "PATH="+bin+":"+os.Getenv("PATH"))
	return &shell{t: t, g: g, env: env}
}

// start starts a line in bash.
func (s *shell) start(line string) *kit.Process {
	s.t.Helper()
	cmd := exec.Command("bash", "-o", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = s.g.Dir, s.env
	return kit.Start(s.t, cmd)
}

// run runs a command. The test sends what the nats CLI would.
func (s *shell) run(c command) {
	s.t.Helper()
	line := strings.NewReplacer(
		"go run ./cmd/leaf", "leaf",
		"leaf bench", "leaf bench --duration 300ms", // it takes 10 s by default
		"127.0.0.1:4222", strings.TrimPrefix(s.g.URL, "nats://"),
		"http://127.0.0.1:8080", s.g.HTTP,
	).Replace(c.line)
	var out string
	switch words := strings.Fields(line); {
	case strings.HasPrefix(line, "leaf serve --tag order"): // it runs
	case strings.HasPrefix(line, "leaf serve"):
		second := s.start("exec " + line)
		testkit.Eventually(s.t, c.line, func() bool { return strings.HasPrefix(second.Stdout(), "leaf ready") })
	case strings.HasPrefix(line, "leaf events"): // in a terminal of its own
		s.followers = append(s.followers, s.start("exec "+line))
	case words[0] == "nats":
		body := strings.Join(words[3:min(4, len(words))], "")
		if m := regexp.MustCompile(`'([^']*)'`).FindStringSubmatch(line); m != nil {
			body = m[1]
		}
		reply, err := kit.Connect(s.t, s.g.URL).Request(words[2], []byte(body), kit.Patience)
		if err != nil || reply.Header.Get("Nats-Service-Error") != "" {
			s.t.Fatalf("%s: %s: %v %v", c.page, c.line, err, reply)
		}
		out = string(reply.Data)
	default:
		r := kit.Finish(s.t, s.start(line))
		if r.Status != 0 {
			s.t.Errorf("%s: %s: status %d: %s%s", c.page, c.line, r.Status, r.Stdout, r.Stderr)
		}
		out = r.Stdout
	}
	s.compare(c, strings.TrimSpace(out))
}

// compare compares what a command printed with a comment that is IDs or JSON. After "for example" other numbers may
// stand there.
func (s *shell) compare(c command, out string) {
	s.t.Helper()
	m := regexp.MustCompile(`^(.*for example )?([0-9]+(?:-[0-9]+)?|\{[^…]*\})$`).FindStringSubmatch(c.comment)
	if m == nil {
		return
	}
	want := m[2]
	if m[1] != "" {
		number := regexp.MustCompile(`[0-9]+`)
		out, want = number.ReplaceAllString(out, "N"), number.ReplaceAllString(want, "N")
	}
	if out != want {
		s.t.Errorf("%s: %s prints %q, and the comment says %q", c.page, c.line, out, c.comment)
	}
}

// interrupt presses Ctrl-C where leaf events still runs.
func (s *shell) interrupt() {
	s.t.Helper()
	for i, p := range s.followers {
		if i == 1 { // --since 1h
			testkit.Eventually(s.t, "the start of the generator among the events", func() bool {
				return strings.Contains(p.Stdout(), "node.started")
			})
		}
		kit.Must(s.t, p.Signal(os.Interrupt))
		if r := kit.Finish(s.t, p); r.Status != 0 {
			s.t.Errorf("leaf events: exit status %d after Ctrl-C: %s", r.Status, r.Stderr)
		}
	}
}
