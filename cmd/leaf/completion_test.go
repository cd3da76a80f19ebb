package main

import (
	"strings"
	"testing"
)

// cobra's directives.
const (
	offerFiles   = ":0"
	offerNoFiles = ":4"
	offerFolders = ":16"
)

// completed returns what a shell is offered, and the directive for it.
func completed(t *testing.T, args ...string) (offered, directive string) {
	t.Helper()
	status, stdout, stderr := leaf(t, append([]string{"__complete"}, args...)...)
	if status != exitOK {
		t.Fatalf("completing %q: status %d: %s", args, status, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	return strings.Join(lines[:len(lines)-1], " "), lines[len(lines)-1]
}

// Tags are completed from the installation that the command would ask, and values of flags from what is allowed.
func TestCompletion(t *testing.T) {
	url := answering(t, "leaf.admin.tags.list", func(body string) (string, string) {
		if body != `{"prefix":"or","limit":100}` {
			t.Errorf("asked for %s", body)
		}
		return `{"tags":[{"tag":"order"},{"tag":"order.item"}],"unserved":[{"tag":"or bad","problem":"p"}],"next":"order.item"}`, ""
	})
	const tags = "order order.item"
	for line, want := range map[string][2]string{
		"get or": {tags, offerNoFiles}, "tag info or": {tags, offerNoFiles}, "tag set or": {tags, offerNoFiles}, "tag rm or": {tags, offerNoFiles},
		"bench or": {tags, offerNoFiles}, "trace or": {tags, offerNoFiles},
		"get order or": {"", offerNoFiles}, "tag set order or": {"", offerNoFiles},
		"tag advance order or": {"order.item", offerNoFiles}, "audit order or": {"order.item", offerNoFiles},
		"tag add or": {"", offerNoFiles}, "snowflake or": {"", offerNoFiles}, "nodes or": {"", offerNoFiles},

		"serve --log-level ": {"debug info warn error", offerNoFiles}, "serve --max-batch ": {"", offerNoFiles},
		"serve --data-dir ": {"", offerFolders}, "serve --nats-config ": {"", offerFiles}, "get --creds ": {"", offerFiles},
		"get order --output ": {"", offerFiles}, "serve --time-unit ": {"1ms 10ms 100ms 1s", offerNoFiles},
		"tag add invoice --order ": {"trend strict", offerNoFiles},
	} {
		args := strings.Split(line, " ")
		last := len(args) - 1
		if args[last] != "" {
			args = append(append(args[:last:last], "-s", url), args[last])
		}
		if offered, directive := completed(t, args...); offered != want[0] || directive != want[1] {
			t.Errorf("%q: offered %q, %s; want %q", line, offered, directive, want)
		}
	}
	if offered, directive := completed(t, "get", "-s", freeAddress(t), "or"); offered != "" ||
		directive != offerNoFiles {
		t.Errorf("without NATS: offered %q, %s", offered, directive)
	}
}
