package tests

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// patience bounds each wait of a test.
const patience = testkit.Patience

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is a running leaf.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	exited         chan struct{} // closed when it has
}

// command is a leaf in the folder dir that knows no settings but its arguments
// and env: neither those of whoever runs the tests nor their NATS context.
func command(t *testing.T, dir string, env, args []string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(leafPath(), args...)
	cmd.Dir = dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "LEAF_") && !strings.HasPrefix(entry, "NATS_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	// The race detector would let each process rest for a second at its end.
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// start runs cmd until the test ends. A data race or a crash in it fails the
// test, whatever else it does.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, exited: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // the status is in cmd.ProcessState
	}()
	t.Cleanup(func() {
		p.kill()
		stderr := p.stderr.String()
		for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
			if strings.Contains(stderr, bad) {
				t.Errorf("%v: %s", cmd.Args, bad)
			}
		}
		if t.Failed() {
			t.Logf("%v (%v) wrote to stderr:\n%s", cmd.Args, cmd.ProcessState, stderr)
		}
	})
	return p
}

// kill ends the process at once, as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.exited
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%v: %v", s, err)
	}
}

// freeze stops every thread of the process where it is, until SIGCONT. Only when
// none runs any more is it certain that nothing is answered.
func (p *process) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || !status.Stopped():
			p.t.Fatalf("%v cannot be frozen: %v, %v", p.cmd.Args, status, err)
		default:
			return
		}
	}
}

// wait waits for the process to end and returns its exit status.
func (p *process) wait(most time.Duration) int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(most):
		p.t.Fatalf("%v still runs after %v", p.cmd.Args, most)
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop asks the process to stop, and demands that it succeeds.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if status := p.wait(patience); status != 0 {
		p.t.Errorf("%v: exit status %d after SIGTERM", p.cmd.Args, status)
	}
}

// generator is a leaf serve that is ready.
type generator struct {
	*process
	dir                     string // its working folder; the data folder is in it
	url, http, node, folder string
	mode                    string
	waiting                 string // what it could not serve when it wrote its ready line
}

var readyLine = regexp.MustCompile(`^leaf ready nats=(\S+) http=(\S+) node=([A-Za-z0-9_.-]{1,64}) data=(\S+) mode=(embedded|joined)(?: waiting=(segments|snowflakes|segments,snowflakes))?\n$`)

// serve starts a generator in the folder dir and waits until it can give both kinds of IDs.
// Starting another one there later is a restart.
func serve(t *testing.T, dir string, args ...string) *generator {
	t.Helper()
	return ready(t, dir, start(t, command(t, dir, nil, append([]string{"serve", "--http", ""}, args...))))
}

// serveLacking is [serve] for a generator that is not to have a store or a worker yet: it does not wait for these kinds of
// IDs, as a ready line names them.
func serveLacking(t *testing.T, kinds, dir string, args ...string) *generator {
	t.Helper()
	return readyBut(t, kinds, dir, start(t, command(t, dir, nil, append([]string{"serve", "--http", ""}, args...))))
}

// ready waits until a generator can give both kinds of IDs. On a slow machine that is after its ready line.
func ready(t *testing.T, dir string, p *process) *generator {
	t.Helper()
	return readyBut(t, "", dir, p)
}

// readyBut waits until a generator can give all kinds of IDs but these.
func readyBut(t *testing.T, kinds, dir string, p *process) *generator {
	t.Helper()
	g := begun(t, dir, p)
	if strings.Contains(kinds, g.waiting) {
		return g
	}
	nc, err := nats.Connect(g.url, nats.UserInfo(argument(p.cmd.Args, "--user"), argument(p.cmd.Args, "--password")))
	if err != nil {
		t.Fatalf("asking %s for its state: %v", g.node, err)
	}
	defer nc.Close()
	c := bus.NewClient(nc)
	testkit.Eventually(t, "what "+g.node+" waits for at its start", func() bool {
		found, _ := c.States(t.Context()) // without an answer it asks again
		return slices.ContainsFunc(found, func(s bus.State) bool {
			return s.Node == g.node && (s.Segment || strings.Contains(kinds, "segments")) && (s.Snowflake || strings.Contains(kinds, "snowflakes"))
		})
	})
	return g
}

// argument is what follows a flag; empty if the flag is not there.
func argument(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 {
		return args[i+1]
	}
	return ""
}

// begun waits until a generator answers requests, if only with what it lacks.
func begun(t *testing.T, dir string, p *process) *generator {
	t.Helper()
	testkit.Eventually(t, "a line on stdout", func() bool {
		select {
		case <-p.exited:
			t.Fatalf("%v ended: %v", p.cmd.Args, p.cmd.ProcessState)
		default:
		}
		return strings.Contains(p.stdout.String(), "\n")
	})
	m := readyLine.FindStringSubmatch(p.stdout.String())
	if m == nil {
		t.Fatalf("%v wrote %q, not a ready line", p.cmd.Args, p.stdout.String())
	}
	return &generator{process: p, dir: dir, url: m[1], http: m[2], node: m[3], folder: m[4], mode: m[5], waiting: m[6]}
}

// embed starts a generator with a NATS server of its own, where it can be started again.
func embed(t *testing.T, args ...string) *generator {
	t.Helper()
	return serve(t, t.TempDir(), append([]string{"--listen", testkit.FreeAddress(t)}, args...)...)
}

// embedLacking is [embed] for a generator as in [serveLacking].
func embedLacking(t *testing.T, kinds string, args ...string) *generator {
	t.Helper()
	return serveLacking(t, kinds, t.TempDir(), append([]string{"--listen", testkit.FreeAddress(t)}, args...)...)
}

// again starts a generator that has ended once more: same folder, same address.
func (g *generator) again(t *testing.T, args ...string) *generator {
	t.Helper()
	return serve(t, g.dir, append(g.place(), args...)...)
}

// place are the arguments for a restart at the same address.
func (g *generator) place() []string {
	if g.mode == "embedded" {
		return []string{"--listen", strings.TrimPrefix(g.url, "nats://")}
	}
	return []string{"-s", g.url}
}

// result is what a command left.
type result struct {
	status         int
	stdout, stderr string
}

// leaf runs a command to its end.
func leaf(t *testing.T, args ...string) result {
	t.Helper()
	return runLeaf(t, command(t, t.TempDir(), nil, args))
}

func runLeaf(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	p := start(t, cmd)
	status := p.wait(patience)
	return result{status, p.stdout.String(), p.stderr.String()}
}

// leafOK runs a command that must succeed, and returns its stdout.
func leafOK(t *testing.T, args ...string) string {
	t.Helper()
	r := leaf(t, args...)
	if r.status != 0 {
		t.Fatalf("leaf %v: exit status %d: %s", args, r.status, r.stderr)
	}
	return r.stdout
}

// want fails the test if the command did not end like this.
func (r result) want(t *testing.T, status int, stderr ...string) {
	t.Helper()
	if r.status != status {
		t.Errorf("exit status %d, want %d; stderr: %s", r.status, status, r.stderr)
	}
	for _, text := range stderr {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr does not say %q: %s", text, r.stderr)
		}
	}
}

// states asks the generators for their state until there are so many.
func states(t *testing.T, c *bus.Client, count int) []bus.State {
	t.Helper()
	var found []bus.State
	testkit.Eventually(t, "the state of all generators", func() bool {
		var err error
		if found, err = c.States(t.Context()); err != nil && !errors.Is(err, nats.ErrConnectionReconnecting) {
			t.Fatal(err)
		}
		return len(found) == count
	})
	return found
}
