// Package clients tests the clients in other languages, in the folder clients, with real generators and with answers
// that a script gives.
package clients

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/tests/kit"
)

// folder has a copy of each client, as it was built.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "leaf-clients-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := kit.Main(m)
	os.RemoveAll(folder)
	os.Exit(status)
}

// language is a client, and how its program conformance is started.
type language struct {
	name  string
	http  bool                                    // it needs the URL of HTTP, not that of NATS
	build func(t *testing.T, dir string) []string // in a copy of its folder: it returns the command
	once  sync.Once
	args  []string // nil: it could not be built
}

var languages = []*language{
	{name: "javascript", build: func(t *testing.T, dir string) []string {
		run(t, dir, "npm", "ci")
		run(t, dir, "npx", "tsc", "--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "esnext",
			"types.ts")
		return []string{"node", "conformance.js"}
	}},
	{name: "python", build: func(t *testing.T, dir string) []string {
		// In place of nats-py, which Debian does not have. The variable is a folder with the real one.
		kit.Must(t, os.CopyFS(dir, os.DirFS(cmp.Or(os.Getenv("LEAF_TEST_NATS_PY"), "python"))))
		return []string{"python3", "conformance.py"}
	}},
	{name: "java", http: true, build: func(t *testing.T, dir string) []string {
		run(t, dir, "javac", "--release", "11", "-Werror", "leafbus/LeafClient.java", "Conformance.java")
		return []string{"java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "Conformance"}
	}},
}

// run runs a program that must succeed.
func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// program returns the folder and the command of a client. Tests share it.
func (l *language) program(t *testing.T) (dir string, args []string) {
	t.Helper()
	dir = filepath.Join(folder, l.name)
	l.once.Do(func() {
		kit.Must(t, os.CopyFS(dir, os.DirFS(filepath.Join("../../clients", l.name))))
		l.args = l.build(t, dir)
	})
	if l.args == nil {
		t.Fatalf("the client in %s could not be built", l.name)
	}
	return dir, l.args
}

// runner is a process that runs calls of a client.
type runner struct {
	t     *testing.T
	stdin io.Writer

	mu     sync.Mutex
	number int
	waits  map[string]chan string // for an answer, by the number of the call
	ended  chan struct{}          // closed when the process ends
}

// start starts the client of a language, with the addresses of a generator and of a script.
func (l *language) start(t *testing.T, real, scripted string) *runner {
	t.Helper()
	dir, args := l.program(t)
	cmd := exec.Command(args[0], append(args[1:], real, scripted)...)
	cmd.Dir, cmd.Stderr = dir, &logged{t: t}
	stdin, err := cmd.StdinPipe()
	kit.Must(t, err)
	stdout, err := cmd.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, cmd.Start())
	r := &runner{t: t, stdin: stdin, waits: make(map[string]chan string), ended: make(chan struct{})}
	go r.read(stdout)
	t.Cleanup(func() {
		stdin.Close()
		select {
		case <-r.ended:
		case <-time.After(kit.Patience):
			cmd.Process.Kill()
			<-r.ended
		}
		cmd.Wait()
	})
	return r
}

// read hands the answers to those that wait for them.
func (r *runner) read(stdout io.Reader) {
	defer close(r.ended)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		number, answer, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		r.mu.Lock()
		c := r.waits[number]
		delete(r.waits, number)
		r.mu.Unlock()
		if c != nil {
			c <- answer
		}
	}
}

// begin sends a call. Its answer comes later.
func (r *runner) begin(server, call string) <-chan string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	c := make(chan string, 1)
	r.waits[fmt.Sprint(r.number)] = c
	_, err := fmt.Fprintf(r.stdin, "%d %s %s\n", r.number, server, call)
	kit.Must(r.t, err)
	return c
}

// finish waits for the answer to a call.
func (r *runner) finish(c <-chan string) string {
	r.t.Helper()
	select {
	case answer := <-c:
		return answer
	case <-r.ended:
		r.t.Fatal("the client ended")
	case <-time.After(kit.Patience):
		r.t.Fatal("a call does not end")
	}
	return ""
}

func (r *runner) call(server, call string) string {
	r.t.Helper()
	return r.finish(r.begin(server, call))
}

// words are those of an answer with IDs.
func (r *runner) words(server, call string) []string {
	r.t.Helper()
	answer := r.call(server, call)
	words := strings.Fields(answer)
	if len(words) == 0 || words[0] != "=" {
		r.t.Fatalf("%s: %s", call, answer)
	}
	return slices.Clip(words[1:])
}

// logged writes what a client complains about into the test's log.
type logged struct {
	t  *testing.T
	mu sync.Mutex
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("%s", p)
	return len(p), nil
}
