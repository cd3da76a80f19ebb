package tests

import (
	"os/exec"
	"strings"
	"testing"
)

// Where only the address is in use, the advised commands keep what was asked for:
// the installation that the folder holds goes on elsewhere, and whoever joins takes another
// folder.
func TestAdviceKeepsTheInstallation(t *testing.T) {
	t.Parallel()
	busy := embed(t, "--tag", "theirs")
	address := strings.TrimPrefix(busy.url, "nats://")
	mine := embed(t, "--tag", "order", "--node", "mine")
	if got := leafOK(t, "get", "order", "-s", mine.url); got != "1\n" {
		t.Errorf("the first ID is %q", got)
	}
	mine.stop()
	flags := []string{"--listen", address, "--http", "", "--max-batch", "77", "--tag", "order", "--data-dir", mine.folder}
	commands := advice(t, runLeaf(t, command(t, mine.dir, nil, append([]string{"serve"}, flags...))))
	if len(commands) != 2 {
		t.Fatalf("advised %q", commands)
	}

	joins := follow(t, mine.dir, commands[0])
	if joins.url != busy.url || joins.folder != mine.folder+"-2" {
		t.Errorf("%q: %s", commands[0], joins.stdout.String())
	}
	leafOK(t, "get", "order", "-s", busy.url)
	joins.stop()

	elsewhere := follow(t, mine.dir, commands[1])
	if elsewhere.url == busy.url || elsewhere.folder != mine.folder || elsewhere.node != "mine" {
		t.Errorf("%q: %s", commands[1], elsewhere.stdout.String())
	}
	if got := leafOK(t, "get", "order", "-s", elsewhere.url); got == "1\n" {
		t.Error("the installation is an empty one: an ID came twice")
	}
	leaf(t, "get", "order", "-n", "1000000", "-s", elsewhere.url).want(t, 0) // the client asks for less, as it must
	refused(t, ask(t, connect(t, elsewhere.url), "leaf.segment.order", "78"), 413, "batch_too_large")
	elsewhere.stop()
}

// A second leaf serve in the same place is told at once how to be a second generator.
func TestAdviceOnALockedFolder(t *testing.T) {
	t.Parallel()
	first := embed(t, "--tag", "order")
	address := strings.TrimPrefix(first.url, "nats://")
	r := runLeaf(t, command(t, first.dir, nil, []string{"serve", "--listen", address, "--tag", "order"}))
	r.want(t, 1, first.folder, "in use by another generator", "--data-dir")
	commands := advice(t, r)
	if len(commands) != 2 || !strings.HasPrefix(commands[0], "leaf serve -s "+first.url+" --data-dir leaf-data-2 --http ''") {
		t.Fatalf("advised %q", commands)
	}
	second := follow(t, first.dir, commands[0])
	if second.url != first.url || second.folder != first.folder+"-2" {
		t.Errorf("%q: %s", commands[0], second.stdout.String())
	}
	second.stop()
}

// advice is the commands that an error shows.
func advice(t *testing.T, r result) (commands []string) {
	t.Helper()
	r.want(t, 1, "in use")
	for line := range strings.Lines(r.stderr) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "leaf serve") {
			commands = append(commands, line)
		}
	}
	return commands
}

// follow does in the folder dir what was advised.
func follow(t *testing.T, dir, line string) *generator {
	t.Helper()
	shell := exec.Command("sh", "-c", "exec "+line)
	like := command(t, dir, nil, nil)
	shell.Dir, shell.Env = dir, append(like.Env, "PATH="+leafBin)
	return ready(t, dir, start(t, shell))
}
