package tests

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
)

// clientBlock is the only block in a language of docs/clients.md.
func clientBlock(t *testing.T, language string) string {
	t.Helper()
	blocks := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(topFile(t, "docs/clients.md"), -1)
	if len(blocks) != 1 {
		t.Fatalf("docs/clients.md has %d blocks of %s, want one", len(blocks), language)
	}
	return blocks[0][1]
}

// there fails the test if one of the commands is not.
func there(t *testing.T, commands ...string) {
	t.Helper()
	for _, name := range commands {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%v: tests/install.sh installs it (make deps)", err)
		}
	}
}

// overhear returns a function that returns the IDs that callers were answered
// on leaf.segment.order and leaf.snowflake since it was last called, in decimal.
func overhear(t *testing.T, url string) func() []string {
	t.Helper()
	nc := connect(t, url)
	heard := make(chan *nats.Msg, 1024)
	for _, subject := range []string{"leaf.segment.order", "leaf.snowflake", "_INBOX.>"} {
		if _, err := nc.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	// All that the server has passed on before it answers a flush is in heard after it.
	flush := func() {
		t.Helper()
		if err := nc.FlushTimeout(patience); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	return func() []string {
		t.Helper()
		flush()
		var ids []string
		asked := make(map[string]bool) // where replies are awaited: others use inboxes, too
		for len(heard) > 0 {
			msg := <-heard
			if strings.HasPrefix(msg.Subject, "leaf.") {
				asked[msg.Reply] = true
			}
			if !asked[msg.Subject] {
				continue
			}
			ranges, err := bus.ParseReply(msg.Data)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range ranges {
				for id := r.First; id <= r.Last; id++ {
					ids = append(ids, strconv.FormatInt(id, 10))
				}
			}
		}
		return ids
	}
}

// printsOrder adds a line to a program of docs/clients.md, after the only line with this text. There it prints
// the header of a strict tag, with one of the two expressions that docs/clients.md has for it.
func printsOrder(t *testing.T, program, after string, expression int, format string) string {
	t.Helper()
	found := regexp.MustCompile("In the programs above the header is `(.*)` and `(.*)`").FindStringSubmatch(topFile(t, "docs/clients.md"))
	lines := strings.Split(program, "\n")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, after) })
	if found == nil || at < 0 {
		t.Fatalf("docs/clients.md does not say how to read the header, or the program lacks %q", after)
	}
	return strings.Join(slices.Insert(lines, at+1, fmt.Sprintf(format, found[1+expression])), "\n")
}

// tryPrograms runs a program of docs/clients.md, made for a generator's address: as it stands, named ids, and with
// printsOrder for a strict tag, named order.
func tryPrograms(t *testing.T, program func(url, name string) *exec.Cmd) {
	t.Helper()
	t.Run("trend", func(t *testing.T) {
		tryProgram(t, bus.OrderTrend, func(url string) *exec.Cmd { return program(url, "ids") })
	})
	t.Run("strict", func(t *testing.T) {
		tryProgram(t, bus.OrderStrict, func(url string) *exec.Cmd { return program(url, "order") })
	})
}

// tryProgram compares what a program prints with what the generator answered.
func tryProgram(t *testing.T, order string, program func(url string) *exec.Cmd) {
	t.Helper()
	g := embed(t)
	try := func() result {
		t.Helper()
		return runLeaf(t, program(g.url))
	}
	// The program's error: its headers and its reason.
	if got := try(); got.stdout != "" {
		t.Errorf("without its tag it prints %q", got.stdout)
	} else {
		got.want(t, 1, "404 unknown_tag: ")
	}

	leafOK(t, "tag", "add", "order", "--order", order, "-s", g.url)
	answered := overhear(t, g.url)
	seen := make(map[string]bool)
	last := int64(0)
	// A float has no 2^53+1, nor any odd number above.
	for _, maxID := range []int64{1, 1<<53 + 1} {
		if maxID > 1 {
			leafOK(t, "tag", "set", "order", "--max-id", strconv.FormatInt(maxID, 10), "-s", g.url)
		}
		got := try()
		got.want(t, 0)
		if n := strings.Count(got.stderr, bus.OrderStrict); order == bus.OrderStrict && n != 2 {
			t.Errorf("%d answers for a strict tag have the header, want 2: %s", n, got.stderr)
		}
		ids := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
		want := answered()
		if len(want) != 1000+1+1 || len(ids) != len(want) {
			t.Fatalf("answered were %d IDs, it prints %d; docs/clients.md says 1,000, another one and a snowflake", len(want), len(ids))
		}
		for i, id := range ids {
			if id != want[i] {
				t.Fatalf("the ID at %d is %s, it prints %q", i, want[i], id)
			}
			if seen[id] {
				t.Errorf("%s came twice", id)
			}
			seen[id] = true
			n, err := strconv.ParseInt(id, 10, 64)
			if err != nil || n < maxID {
				t.Errorf("%q is below max_id %d: %v", id, maxID, err)
			}
			if i < 1000+1 { // the last one is a snowflake
				if n <= last {
					t.Errorf("%d came after %d", n, last)
				}
				last = n
			}
		}
	}
}

// against is a command in the folder dir that finds the generator as users of
// the programs tell it to, and no other.
func against(url, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NATS_URL="+url)
	return cmd
}

// The client and its version are those of tests/javascript. Another version:
// npm install --package-lock-only --save-exact @nats-io/transport-node@VERSION.
func TestDocsJavaScript(t *testing.T) {
	t.Parallel()
	there(t, "node", "npm")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("javascript")); err != nil {
		t.Fatal(err)
	}
	install := exec.Command("npm", "ci")
	install.Dir = dir
	p := start(t, install)
	// It tries again by itself where a registry is slow.
	if status := p.wait(3 * patience); status != 0 {
		t.Fatalf("npm ci: exit status %d: %s", status, p.stderr.String())
	}
	ids := clientBlock(t, "js")
	writeFile(t, dir+"/ids.mjs", ids)
	writeFile(t, dir+"/order.mjs", printsOrder(t, ids, "nc.request(", 0, "  console.error(%s);"))
	tryPrograms(t, func(url, name string) *exec.Cmd { return against(url, dir, "node", name+".mjs") })
}
