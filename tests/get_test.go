package tests

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// With many requests at a time each ID is written once, on a line of its own.
func TestGetInParallel(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order", "--max-batch", "3000")
	for _, args := range [][]string{{"get", "order"}, {"snowflake"}} {
		out := leafOK(t, append(args, "-n", "200000", "--parallel", "8", "-s", g.url)...)
		var seen allocatortest.Checker
		ids := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		for _, text := range ids {
			id, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			seen.Add(bus.Range{First: id, Last: id})
		}
		if n, err := seen.Check(); n != 200_000 || err != nil {
			t.Errorf("%v: %d IDs, %v", args, n, err)
		}
	}
	for _, n := range []string{"0", "-1", "1001", "x"} {
		leaf(t, "get", "order", "--parallel", n, "-s", g.url).want(t, 2, "--parallel")
	}
}

// An interrupt leaves whole lines, and it says how many.
func TestGetInterrupted(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	for _, parallel := range []string{"1", "4"} {
		file := t.TempDir() + "/ids.txt"
		p := start(t, command(t, t.TempDir(), nil, []string{
			"get", "order", "-n", "1000000000000", "--parallel", parallel, "--output", file, "-s", g.url,
		}))
		testkit.Eventually(t, "some IDs", func() bool {
			info, err := os.Stat(file)
			return err == nil && info.Size() > 1<<20
		})
		p.signal(syscall.SIGINT)
		result{p.wait(patience), "", p.stderr.String()}.want(t, 1, "interrupted")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`\A([1-9][0-9]*\n)+\z`).Match(text) {
			t.Errorf("not whole lines: they end with %q", text[max(0, len(text)-60):])
		}
		said := regexp.MustCompile(`(\d+) of 1000000000000 IDs were written`).FindStringSubmatch(p.stderr.String())
		if written := strings.Count(string(text), "\n"); said == nil || said[1] != strconv.Itoa(written) {
			t.Errorf("%d lines; it says %q", written, p.stderr.String())
		}
	}
}

// A permission that lacks is told, once, and not after a wait.
func TestGetWithoutPermission(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/nats.conf"
	writeFile(t, file, `authorization { users: [
		{user: leaf, password: p}
		{user: mute, password: p, permissions: {publish: {deny: ["leaf.>", "$JS.>", "$SRV.>"]}}}
		{user: deaf, password: p, permissions: {subscribe: {deny: ["leaf.events.>"]}}}
	] }`)
	g := embed(t, "--nats-config", file, "--user", "leaf", "--password", "p", "--tag", "order")
	for _, args := range [][]string{
		{"get", "order"}, {"get", "order", "-n", "1000000", "--parallel", "8"}, {"snowflake"}, {"decode", "1"},
		{"tag", "list"}, {"tag", "add", "x"}, {"nodes"}, {"workers"}, {"events"}, {"events", "--since", "1h"},
	} {
		// Longer than the test waits for the command.
		r := leaf(t, append(args, "-s", g.url, "--user", "mute", "--password", "p", "--timeout", "10m")...)
		r.want(t, 1, "may not publish to", "permissions violation")
		if strings.Count(r.stderr, "\n") != 1 || r.stdout != "" {
			t.Errorf("%v: it says %q and %q", args, r.stdout, r.stderr)
		}
	}
	leaf(t, "events", "--live", "-s", g.url, "--user", "deaf", "--password", "p").want(t, 1, "may not subscribe to leaf.events.>")
}

// Where nothing came, the file of --output stays as it was; and it says what to do.
func TestGetOfNoTag(t *testing.T) {
	t.Parallel()
	g := embed(t)
	file := t.TempDir() + "/ids.txt"
	writeFile(t, file, "1\n")
	leaf(t, "get", "nobody", "--output", file, "-s", g.url).want(t, 1, "unknown_tag", "leaf tag add")
	if text, err := os.ReadFile(file); err != nil || string(text) != "1\n" {
		t.Errorf("%q, %v", text, err)
	}
}
