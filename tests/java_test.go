package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// javaFolder returns a folder with the class of docs/clients.md and the programs of tests/java, compiled for the
// oldest Java that docs/clients.md promises.
func javaFolder(t *testing.T) string {
	t.Helper()
	there(t, "java", "javac")
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("java")))
	writeFile(t, dir+"/LeafIds.java", clientBlock(t, "java"))
	compile := exec.Command("javac", "--release", "11", "-Werror", "LeafIds.java", "Callers.java", "Steps.java")
	compile.Dir = dir
	runLeaf(t, compile).want(t, 0)
	return dir
}

// javaProgram is a running program of tests/java.
type javaProgram struct {
	*process
	stdin io.Writer
}

func startJava(t *testing.T, dir string, args ...string) *javaProgram {
	t.Helper()
	cmd := exec.Command("java", args...)
	cmd.Dir = dir
	stdin, err := cmd.StdinPipe()
	must(t, err)
	return &javaProgram{start(t, cmd), stdin}
}

// write writes a line to the program's stdin.
func (p *javaProgram) write(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		p.t.Fatal(err)
	}
}

// lines waits until the program has printed n lines, and returns them.
func (p *javaProgram) lines(n int) []string {
	p.t.Helper()
	testkit.Eventually(p.t, fmt.Sprintf("%d lines on stdout", n), func() bool {
		return strings.Count(p.stdout.String(), "\n") >= n
	})
	return strings.Split(strings.TrimSuffix(p.stdout.String(), "\n"), "\n")
}

var callsLine = regexp.MustCompile(`(?m)^(\d+) calls$`)

// calls is how many calls have succeeded, as the program said last.
func (p *javaProgram) calls() int {
	p.t.Helper()
	found := callsLine.FindAllStringSubmatch(p.stderr.String(), -1)
	if len(found) == 0 {
		return 0
	}
	n, err := strconv.Atoi(found[len(found)-1][1])
	must(p.t, err)
	return n
}

// more waits until n more calls have succeeded.
func (p *javaProgram) more(n int) {
	p.t.Helper()
	from := p.calls()
	testkit.Eventually(p.t, fmt.Sprintf("%d more calls", n), func() bool { return p.calls() >= from+n })
}

// takenFrom sorts what a program printed: tags of these tests have low IDs, and snowflakes are above 2^53.
func takenFrom(t *testing.T, tag string, lines []string) audit.Options {
	t.Helper()
	o := audit.Options{Taken: &audit.Taken{}, TakenSnowflakes: &audit.Runs{}}
	for _, line := range lines {
		id, err := strconv.ParseInt(line, 10, 64)
		switch {
		case err != nil || id < 1:
			t.Fatalf("%q is no ID", line)
		case id > 1<<53:
			o.TakenSnowflakes.Add(bus.Range{First: id, Last: id})
		default:
			o.Taken.Add(tag, bus.Range{First: id, Last: id})
		}
	}
	return o
}

// increases fails the test if one of the IDs is not above the one before it.
func increases(t *testing.T, ids []string) {
	t.Helper()
	last := int64(0)
	for _, text := range ids {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id <= last {
			t.Fatalf("%q came after %d", text, last)
		}
		last = id
	}
}

// The program of docs/clients.md, as it stands there, and its class in programs of tests/java.
func TestDocsJava(t *testing.T) {
	t.Parallel()
	dir := javaFolder(t)
	for name, test := range map[string]func(*testing.T, string){
		"program": javaProgramRuns, "memory": javaKeepsIDs, "strict": javaStrictOrder, "age": javaDropsOldSnowflakes,
		// TestDrillJavaDeadlines does the same with a short deadline.
		"faults": func(t *testing.T, dir string) { killAndFreezeForJava(t, dir, 5*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, dir)
		})
	}
}

// The program runs from its source. The generator wants a token.
func javaProgramRuns(t *testing.T, dir string) {
	g := withHTTP(t, "--http-token", "a-token-of-the-tests")
	try := func(env string) result {
		t.Helper()
		cmd := exec.Command("java", "LeafIds.java", g.http, "order", "1000")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env)
		return runLeaf(t, cmd)
	}
	const withToken = "LEAF_HTTP_TOKEN=a-token-of-the-tests"
	try("LEAF_HTTP_TOKEN=another").want(t, 1, "401: ")
	if got := try(withToken); got.stdout != "" {
		t.Errorf("without its tag it prints %q", got.stdout)
	} else {
		got.want(t, 1, "unknown_tag: ")
	}
	leafOK(t, "tag", "add", "order", "-s", g.url)
	var ids, snowflakes []string
	for range 2 {
		got := try(withToken)
		got.want(t, 0)
		lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
		if len(lines) != 1000+1+1 {
			t.Fatalf("it prints %d lines; docs/clients.md says 1,000 IDs, another one and a snowflake", len(lines))
		}
		ids, snowflakes = append(ids, lines[:1001]...), append(snowflakes, lines[1001])
	}
	increases(t, ids)
	increases(t, snowflakes)
	report := auditAgrees(t, g.url, takenFrom(t, "order", slices.Concat(ids, snowflakes)))
	if report.Taken.IDs != 2002 || report.TakenSnowflakes.IDs != 2 {
		t.Errorf("the audit knows %d IDs and %d snowflakes of 2,002 and 2", report.Taken.IDs, report.TakenSnowflakes.IDs)
	}
}

// The second batch is fetched when half of the first one is used. Both can be used when the generator is gone.
func javaKeepsIDs(t *testing.T, dir string) {
	g := withHTTP(t, "--tag", "order")
	nats := client(t, g.url)
	fetched := func() int64 { return states(t, nats, 1)[0].Counts.IDs }
	p := startJava(t, dir, "Steps", "order", "1", "100", g.http)
	p.write("50")
	p.lines(50)
	if n := fetched(); n != 100 {
		t.Errorf("%d IDs were fetched for 50, want 100", n)
	}
	p.write("1")
	p.lines(51)
	testkit.Eventually(t, "the second batch", func() bool { return fetched() == 200 })
	g.stop() // it answers first
	p.write("149")
	increases(t, p.lines(200))
	p.write("1")
	if got := p.lines(201)[200]; got != "timed_out" {
		t.Errorf("without a generator it prints %q", got)
	}
}

// Two clients of a strict tag are asked in turn: each ID is above the one before it.
func javaStrictOrder(t *testing.T, dir string) {
	g := withHTTP(t)
	addStrict(t, g.url, "invoice")
	p := startJava(t, dir, "Steps", "invoice", "2", "100", g.http)
	p.write("100")
	increases(t, p.lines(100))
}

// A second after its request a snowflake in memory is not handed out any more.
func javaDropsOldSnowflakes(t *testing.T, dir string) {
	g := withHTTP(t)
	p := startJava(t, dir, "Steps", "snowflakes", "1", "100", g.http)
	p.write("2")
	increases(t, p.lines(2))
	came := time.Now()
	testkit.Eventually(t, "more than a second to pass", func() bool { return time.Since(came) > 1100*time.Millisecond })
	asked := time.Now()
	p.write("1")
	var decoded bus.Decoded
	must(t, json.Unmarshal(ask(t, connect(t, g.url), "leaf.decode", p.lines(3)[2]).Data, &decoded))
	if age := asked.Sub(time.UnixMilli(decoded.UnixMS)); age > time.Second {
		t.Errorf("a snowflake was %v old", age)
	}
}

// killAndFreezeForJava lets threads take IDs from three generators. One is killed and one is frozen, twice: no call fails,
// and no ID comes twice. It returns the number of calls and the longest one.
func killAndFreezeForJava(t *testing.T, dir string, deadline time.Duration) string {
	url := newNATS(t).ClientURL()
	generators, again := strictGenerators(t, []string{url, url, url}, "--tag", "order:100000")
	args := []string{"Callers", "order", strconv.FormatInt(deadline.Milliseconds(), 10)}
	p := startJava(t, dir, append(args, addressesOf(generators)...)...)
	const calls = 5000
	p.more(calls)
	generators[0].kill()
	generators[1].freeze()
	p.more(calls) // the third answers all
	again(0)
	generators[1].signal(syscall.SIGCONT)
	testkit.Eventually(t, "the thawed generator to be ready", func() bool {
		return fetch(t, "GET", generators[1].http+"/readyz").status == 200
	})
	// The program asks the third one first: it meets a silent generator, then one that is gone.
	generators[0].kill()
	generators[2].freeze()
	p.more(calls)
	generators[2].signal(syscall.SIGCONT)
	p.write("end")
	if status := p.wait(patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if failed := regexp.MustCompile("(?m)^FAILED.*").FindAllString(p.stderr.String(), -1); failed != nil {
		t.Errorf("%d calls failed, the first one: %s", len(failed), failed[0])
	}
	lines := p.lines(1)
	report := auditAgrees(t, url, takenFrom(t, "order", lines))
	if n := report.Taken.IDs + report.TakenSnowflakes.IDs; n != int64(len(lines)) || report.TakenSnowflakes.IDs < calls/10 {
		t.Errorf("the audit knows %d IDs, %d of them snowflakes, and %d were printed", n, report.TakenSnowflakes.IDs, len(lines))
	}
	return fmt.Sprintf("%d calls, %s", p.calls(), regexp.MustCompile("longest: .*").FindString(p.stderr.String()))
}
