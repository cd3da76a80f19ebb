//go:build drills

package drills

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// program is the only block in a language of docs/clients.md.
func program(t *testing.T, language string) string {
	t.Helper()
	block := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$")
	blocks := block.FindAllStringSubmatch(page(t, "docs/clients.md"), -1)
	if len(blocks) != 1 {
		t.Fatalf("docs/clients.md has %d blocks of %s, want one", len(blocks), language)
	}
	return blocks[0][1]
}

// start starts a program in a folder, with a variable of the environment.
func start(t *testing.T, dir, env string, args ...string) *kit.Process {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env)
	return kit.Start(t, cmd)
}

// consecutive fails the test if the lines are not IDs from the first one on.
func consecutive(t *testing.T, lines []string, first int64) {
	t.Helper()
	for i, line := range lines {
		if line != strconv.FormatInt(first+int64(i), 10) {
			t.Fatalf("the ID at %d is %s, want %d", i, line, first+int64(i))
		}
	}
}

// java is a program of the folder java, beside the class of docs/clients.md.
type java struct {
	*kit.Process
	t     *testing.T
	stdin *os.File
}

// compiled returns a folder with both, compiled for the oldest Java that docs/clients.md promises.
func compiled(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	kit.Must(t, os.CopyFS(dir, os.DirFS("java")))
	writeFile(t, dir+"/LeafIds.java", program(t, "java"))
	javac := start(t, dir, "", "javac", "--release", "11", "-Werror", "LeafIds.java", "Callers.java", "Steps.java")
	kit.Finish(t, javac).Want(t, 0)
	return dir
}

func startJava(t *testing.T, dir string, args ...string) *java {
	t.Helper()
	in, out, err := os.Pipe()
	kit.Must(t, err)
	cmd := exec.Command("java", args...)
	cmd.Dir, cmd.Stdin = dir, in
	p := &java{kit.Start(t, cmd), t, out}
	in.Close()
	t.Cleanup(func() { out.Close() })
	return p
}

// more writes a line to the program, and waits until it has printed n lines in all.
func (p *java) more(line string, n int) []string {
	p.t.Helper()
	_, err := fmt.Fprintln(p.stdin, line)
	kit.Must(p.t, err)
	testkit.Eventually(p.t, fmt.Sprintf("%d lines", n), func() bool { return strings.Count(p.Stdout(), "\n") >= n })
	return strings.Split(strings.TrimSuffix(p.Stdout(), "\n"), "\n")
}

// The Java class of docs/clients.md as a program of its own, with a token; what it keeps in memory; and two objects of
// a strict tag, which keep nothing.
func TestDrillJava(t *testing.T) {
	dir := compiled(t)
	g := kit.Embed(t, "--http", "127.0.0.1:0", "--http-token", "a-token")
	run := func(token string) kit.Result {
		return kit.Finish(t, start(t, dir, "LEAF_HTTP_TOKEN="+token, "java", "LeafIds.java", g.HTTP, "order", "1000"))
	}
	run("another").Want(t, 1, "401: ")
	run("a-token").Want(t, 1, "unknown_tag: ")
	kit.LeafOK(t, "tag", "add", "order", "-s", g.URL)
	r := run("a-token")
	r.Want(t, 0)
	if lines := strings.Split(strings.TrimSuffix(r.Stdout, "\n"), "\n"); len(lines) != 1002 {
		t.Errorf("it prints %d lines, want 1,000 IDs, another one and a snowflake", len(lines))
	} else {
		consecutive(t, lines[:1001], 1)
	}

	// The second batch is fetched when half of the first one is used. Both can be used when the generator is gone.
	g = kit.Embed(t, "--http", "127.0.0.1:0", "--tag", "order")
	p := startJava(t, dir, "Steps", "order", "1", "100", g.HTTP)
	p.more("51", 51)
	nc := kit.Connect(t, g.URL)
	testkit.Eventually(t, "the second batch", func() bool {
		states, err := admin.NewClient(nc).States(t.Context())
		return err == nil && states[0].Counts.IDs == 200
	})
	kit.Must(t, g.Stop())
	consecutive(t, p.more("149", 200), 1)
	if got := p.more("1", 201)[200]; got != "timed_out" {
		t.Errorf("without a generator it prints %q", got)
	}

	// Two objects that are asked in turn.
	g = kit.Embed(t, "--http", "127.0.0.1:0")
	kit.LeafOK(t, "tag", "add", "invoice", "--order", "strict", "-s", g.URL)
	last := int64(0)
	for _, line := range startJava(t, dir, "Steps", "invoice", "2", "100", g.HTTP).more("100", 100) {
		id, err := strconv.ParseInt(line, 10, 64)
		if err != nil || id <= last {
			t.Fatalf("%q came after %d", line, last)
		}
		last = id
	}
}

// Of three generators one is killed and one is frozen, twice, while threads of the Java class take IDs with a deadline
// of 500 ms: no call fails, and no ID comes twice.
func TestDrillJavaDeadlines(t *testing.T) {
	dir, url := compiled(t), natskit.Start(t).ClientURL()
	var all []*kit.Generator
	var servers []string
	for range 3 {
		address := testkit.FreeAddress(t)
		all = append(all, kit.Join(t, url, "--tag", "order:100000", "--http", address))
		servers = append(servers, "http://"+address)
	}
	p := startJava(t, dir, append([]string{"Callers", "order", "500"}, servers...)...)
	calls := func() (n int) {
		found := regexp.MustCompile(`(?m)^(\d+) calls$`).FindAllStringSubmatch(p.Stderr(), -1)
		if len(found) > 0 {
			n, _ = strconv.Atoi(found[len(found)-1][1]) // it is a number
		}
		return n
	}
	more := func(n int) {
		t.Helper()
		from := calls()
		testkit.Eventually(t, fmt.Sprintf("%d more calls", n), func() bool { return calls() >= from+n })
	}
	more(5000)
	for _, round := range [][2]int{{0, 1}, {0, 2}} { // the other generator answers all
		kit.Must(t, all[round[0]].Kill())
		kit.Must(t, all[round[1]].Freeze())
		more(5000)
		all[round[0]] = all[round[0]].Again()
		kit.Must(t, all[round[1]].Thaw())
		awaitStatus(t, all[round[1]].HTTP, "/readyz", 200)
	}
	p.more("end", 15_000)
	kit.Finish(t, p.Process).Want(t, 0)
	lines := strings.Fields(p.Stdout())
	if failed := regexp.MustCompile("(?m)^FAILED.*").FindAllString(p.Stderr(), -1); failed != nil {
		t.Errorf("%d calls failed, the first one: %s", len(failed), failed[0])
	}
	seen := make(map[string]bool)
	var ofTag strings.Builder
	for _, line := range lines {
		id, err := strconv.ParseInt(line, 10, 64)
		if err != nil || seen[line] {
			t.Fatalf("%q is no ID, or came twice", line)
		}
		seen[line] = true
		if id>>53 == 0 { // no snowflake
			fmt.Fprintln(&ofTag, id)
		}
	}
	t.Logf("%d calls, %d IDs, %s", calls(), len(lines), regexp.MustCompile("longest: .*").FindString(p.Stderr()))
	file := filepath.Join(t.TempDir(), "taken")
	writeFile(t, file, ofTag.String())
	kit.LeafOK(t, "audit", "-s", url, "order", "--taken", file)
	kit.LeafOK(t, "audit", "-s", url)
}
