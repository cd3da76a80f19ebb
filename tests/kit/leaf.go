package kit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
)

// programs are those that tests build, once for a test binary.
var programs struct {
	mu    sync.Mutex
	dir   string
	paths map[string]string
}

// Build builds a program once and returns its path. pkg is its folder in this module, such as cmd/leaf, or the path of
// a package of a module that this one requires.
func Build(tb testing.TB, pkg string) string {
	tb.Helper()
	programs.mu.Lock()
	defer programs.mu.Unlock()
	if path := programs.paths[pkg]; path != "" {
		return path
	}
	if programs.dir == "" {
		dir, err := os.MkdirTemp("", "leaf-programs-")
		if err != nil {
			tb.Fatal(err)
		}
		programs.dir, programs.paths = dir, map[string]string{}
	}
	path := filepath.Join(programs.dir, filepath.Base(pkg))
	from := pkg
	if !strings.Contains(pkg, ".") {
		from = "github.com/leafbus/leafbus/" + pkg
	}
	out, err := exec.Command("go", "build", "-o", path, from).CombinedOutput()
	if err != nil {
		tb.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	programs.paths[pkg] = path
	return path
}

// Command is a leaf in the folder dir that knows no settings but its arguments and env: neither those of the
// person who runs the tests nor their NATS context.
func Command(tb testing.TB, dir string, env []string, args ...string) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command(Build(tb, "cmd/leaf"), args...)
	cmd.Dir = dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "LEAF_") && !strings.HasPrefix(entry, "NATS_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(append(cmd.Env, "XDG_CONFIG_HOME="+filepath.Join(dir, "config")), env...)
	return cmd
}

// Start runs a command until the test ends. A crash in it fails the test.
func Start(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p, err := Launch(Program{Name: strings.Join(append([]string{"leaf"}, cmd.Args[1:]...), " "), Command: cmd})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.Close()
		stderr := p.Stderr()
		for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
			if strings.Contains(stderr, bad) {
				tb.Errorf("%v: %s", cmd.Args, bad)
			}
		}
		if tb.Failed() {
			tb.Logf("%v (%v) wrote to stderr:\n%s", cmd.Args, cmd.ProcessState, stderr)
		}
	})
	return p
}

// Result is what a command left.
type Result struct {
	Status         int
	Stdout, Stderr string
}

// Leaf runs a leaf command to its end.
func Leaf(tb testing.TB, args ...string) Result {
	tb.Helper()
	return Finish(tb, Start(tb, Command(tb, tb.TempDir(), nil, args...)))
}

// Finish waits for the end of a process.
func Finish(tb testing.TB, p *Process) Result {
	tb.Helper()
	status, err := p.Wait()
	if err != nil {
		tb.Fatal(err)
	}
	return Result{status, p.Stdout(), p.Stderr()}
}

// LeafOK runs a leaf command that must succeed, and returns its stdout.
func LeafOK(tb testing.TB, args ...string) string {
	tb.Helper()
	r := Leaf(tb, args...)
	if r.Status != 0 {
		tb.Fatalf("leaf %v: exit status %d: %s", args, r.Status, r.Stderr)
	}
	return r.Stdout
}

// Want fails the test if the command did not end with this status and these texts in stderr.
func (r Result) Want(tb testing.TB, status int, stderr ...string) {
	tb.Helper()
	if r.Status != status {
		tb.Errorf("exit status %d, want %d; stderr: %s", r.Status, status, r.Stderr)
	}
	for _, text := range stderr {
		if !strings.Contains(r.Stderr, text) {
			tb.Errorf("stderr does not say %q: %s", text, r.Stderr)
		}
	}
}

// Generator is a leaf serve that has written its ready line.
type Generator struct {
	*Process
	Dir                   string // its working folder
	URL, HTTP, Node, Data string
	Mode                  string // embedded or joined
	Waiting               string // the kinds of IDs that it lacked at its ready line

	tb   testing.TB
	args []string
}

var readyLine = regexp.MustCompile(`^leaf ready nats=(\S+) http=(\S*) node=([A-Za-z0-9_.-]{1,64}) data=(\S+) ` +
	`mode=(embedded|joined)(?: waiting=(segments|snowflakes|segments,snowflakes))?\n$`)

// Embed starts a generator with a NATS server of its own at a free address, and waits until it gives both kinds
// of IDs.
func Embed(tb testing.TB, args ...string) *Generator {
	tb.Helper()
	return Serve(tb, tb.TempDir(), append([]string{"--listen", testkit.FreeAddress(tb)}, args...)...)
}

// Join starts a generator that joins the NATS at a URL, and waits until it gives both kinds of IDs.
func Join(tb testing.TB, url string, args ...string) *Generator {
	tb.Helper()
	return Serve(tb, tb.TempDir(), append([]string{"-s", url}, args...)...)
}

// Serve starts a generator in the folder dir and waits until it gives both kinds of IDs. HTTP is off unless the
// arguments say otherwise. The output of leaf serve -h explains them.
func Serve(tb testing.TB, dir string, args ...string) *Generator {
	tb.Helper()
	return serve(tb, "", dir, args...)
}

func serve(tb testing.TB, program, dir string, args ...string) *Generator {
	tb.Helper()
	g := begin(tb, program, dir, args...)
	g.AwaitReady("segments", "snowflakes")
	return g
}

// Begin is [Serve] that waits only for the ready line, for a generator that cannot give all IDs yet.
func Begin(tb testing.TB, dir string, args ...string) *Generator {
	tb.Helper()
	return begin(tb, "", dir, args...)
}

func begin(tb testing.TB, program, dir string, args ...string) *Generator {
	tb.Helper()
	cmd := Command(tb, dir, nil, append([]string{"serve", "--http", ""}, args...)...)
	if program != "" {
		cmd.Path = program
	}
	p := Start(tb, cmd)
	testkit.Eventually(tb, "a line on stdout", func() bool {
		if p.Ended() {
			tb.Fatal(p.failure())
		}
		return strings.Contains(p.Stdout(), "\n")
	})
	m := readyLine.FindStringSubmatch(p.Stdout())
	if m == nil {
		tb.Fatalf("leaf serve %v wrote %q, not a ready line", args, p.Stdout())
	}
	return &Generator{
		Process: p, Dir: dir, URL: m[1], HTTP: m[2], Node: m[3], Data: m[4], Mode: m[5], Waiting: m[6], tb: tb, args: args,
	}
}

// AwaitReady waits until the generator can give these kinds of IDs. On a slow machine that is after its ready line.
func (g *Generator) AwaitReady(kinds ...string) {
	g.tb.Helper()
	if !slices.ContainsFunc(kinds, func(kind string) bool { return strings.Contains(g.Waiting, kind) }) {
		return
	}
	nc := Connect(g.tb, g.URL, nats.UserInfo(g.argument("--user"), g.argument("--password")),
		nats.CustomInboxPrefix("leaf.internal.inbox.ready")) // that of a generator's user, who may have no other one
	defer nc.Close()
	testkit.Eventually(g.tb, fmt.Sprintf("%s gives %v", g.Node, kinds), func() bool {
		return slices.ContainsFunc(States(nc), func(s State) bool {
			return s.Node == g.Node && (s.Segment || !slices.Contains(kinds, "segments")) &&
				(s.Snowflake || !slices.Contains(kinds, "snowflakes"))
		})
	})
}

// argument is what follows a flag; empty if the flag is not there.
func (g *Generator) argument(flag string) string {
	if i := slices.Index(g.args, flag); i >= 0 {
		return g.args[i+1]
	}
	return ""
}

// Again starts a generator that has ended once more, with the same folder, address and arguments and these further
// ones.
func (g *Generator) Again(args ...string) *Generator {
	g.tb.Helper()
	return Serve(g.tb, g.Dir, append(slices.Clone(g.args), args...)...)
}

// AgainAs is [Generator.Again] with another program than this leaf, such as another version.
func (g *Generator) AgainAs(program string) *Generator {
	g.tb.Helper()
	return serve(g.tb, program, g.Dir, g.args...)
}

// Arguments are those with which it was started.
func (g *Generator) Arguments() []string { return slices.Clone(g.args) }

// State is what a generator says of itself in $SRV.STATS.
type State struct {
	Node               string
	Segment, Snowflake bool // whether it can give these IDs
	Ready              bool
	Missing            []string
	Reasons            map[string]string // why it is missing
	Worker             *int64
	Counts             struct{ Requests, Waiting int64 }
}

// States asks all generators for their state, for half a second.
func States(nc *nats.Conn) (found []State) {
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := nc.PublishRequest("$SRV.STATS.leaf", inbox, nil); err != nil {
		return nil
	}
	for wait := 500 * time.Millisecond; ; wait = 100 * time.Millisecond {
		msg, err := answers.NextMsg(wait)
		if err != nil {
			return found
		}
		var stats struct {
			Endpoints []struct{ Data *State }
		}
		if json.Unmarshal(msg.Data, &stats) != nil {
			continue
		}
		for _, e := range stats.Endpoints {
			if e.Data != nil && e.Data.Node != "" {
				found = append(found, *e.Data)
			}
		}
	}
}

// Connect connects to a NATS that may go and come back, until the test ends. It tries again while the machine is
// too slow: a server that stands still for 2 s sends its own PING before it answers that of the client, which nats.go
// takes for an error.
func Connect(tb testing.TB, url string, options ...nats.Option) *nats.Conn {
	tb.Helper()
	options = append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, options...)
	for end := time.Now().Add(Patience); ; {
		nc, err := nats.Connect(url, options...)
		if err == nil {
			tb.Cleanup(nc.Close)
			return nc
		}
		slow := errors.Is(err, nats.ErrTimeout) || strings.Contains(err.Error(), "expected 'PONG', got 'PING'")
		if !slow || time.Now().After(end) {
			tb.Fatalf("connecting to %s: %v", url, err)
		}
	}
}

// Must fails the test at once with an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
