package main

import (
	"strings"
	"testing"
)

// completed returns what a shell is offered, and the directive for it.
func completed(t *testing.T, args ...string) (offered []string, directive string) {
	t.Helper()
	status, stdout, stderr := leaf(t, append([]string{"__complete"}, args...)...)
	if status != exitOK {
		t.Fatalf("completing %q: status %d: %s", args, status, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

// cobra's directives.
const (
	offerFiles   = ":0"
	offerNoFiles = ":4"
	offerFolders = ":16"
)

// Tags are completed from the installation that the command would ask.
func TestCompleteTags(t *testing.T) {
	url := answering(t, "leaf.admin.tags.list", func(body string) (string, string) {
		if body != `{"prefix":"or","limit":100}` {
			t.Errorf("asked for %s", body)
		}
		return `{"tags":[{"tag":"order"},{"tag":"order.item"}],"unserved":[{"tag":"or bad","problem":"p"}],"next":"order.item"}`, ""
	})
	named := []string{"-s", url}
	for _, command := range [][]string{{"get"}, {"tag", "show"}, {"tag", "info"}, {"tag", "set"}, {"tag", "rm"}, {"bench"}, {"trace"}} {
		offered, directive := completed(t, append(append(command, named...), "or")...)
		if strings.Join(offered, " ") != "order order.item" || directive != offerNoFiles {
			t.Errorf("%v: offered %q, %s", command, offered, directive)
		}
		if offered, directive = completed(t, append(append(command, named...), "order", "or")...); len(offered) > 0 || directive != offerNoFiles {
			t.Errorf("%v with a tag: offered %q, %s", command, offered, directive)
		}
	}
	for _, command := range [][]string{{"tag", "advance"}, {"audit"}} {
		if offered, _ := completed(t, append(append(command, named...), "order", "or")...); strings.Join(offered, " ") != "order.item" {
			t.Errorf("%v, a second tag: offered %q", command, offered)
		}
	}
	t.Setenv("LEAF_SERVER", url)
	if offered, _ := completed(t, "get", "or"); len(offered) != 2 {
		t.Errorf("with LEAF_SERVER: offered %q", offered)
	}
	for _, command := range [][]string{{"tag", "add"}, {"snowflake"}, {"nodes"}} {
		if offered, directive := completed(t, append(command, "or")...); len(offered) > 0 || directive != offerNoFiles {
			t.Errorf("%v: offered %q, %s", command, offered, directive)
		}
	}
}

func TestCompleteFlags(t *testing.T) {
	cleanEnv(t)
	for _, c := range []struct {
		args      []string
		offered   string
		directive string
	}{
		{[]string{"serve", "--log-level", ""}, "debug info warn error", offerNoFiles},
		{[]string{"serve", "--data-dir", ""}, "", offerFolders},
		{[]string{"serve", "--nats-config", ""}, "", offerFiles},
		{[]string{"get", "--creds", ""}, "", offerFiles},
		{[]string{"get", "order", "--output", ""}, "", offerFiles},
		{[]string{"serve", "--time-unit", ""}, "1ms 10ms 100ms 1s", offerNoFiles},
		{[]string{"serve", "--max-batch", ""}, "", offerNoFiles},
	} {
		offered, directive := completed(t, c.args...)
		if strings.Join(offered, " ") != c.offered || directive != c.directive {
			t.Errorf("%q: offered %q, %s; want %s, %s", c.args, offered, directive, c.offered, c.directive)
		}
	}
	if offered, directive := completed(t, "get", "-s", freeAddress(t), "or"); len(offered) > 0 || directive != offerNoFiles {
		t.Errorf("without NATS: offered %q, %s", offered, directive)
	}
}
