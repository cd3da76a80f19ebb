package main

import (
	"strings"
	"testing"
)

// Each command also has the names that other tools use.
func TestTagAliases(t *testing.T) {
	url := answering(t, "leaf.admin.tags.*", func(body string) (string, string) {
		if body != `{"tag":"order","step":5}` && body != `{"tag":"order"}` {
			t.Errorf("asked for %s", body)
		}
		return `{"tag":"order","max_id":"1","step":5}`, ""
	})
	for _, args := range [][]string{{"create", "order", "--step", "5"}, {"delete", "order", "--yes"}, {"remove", "order", "--yes"}} {
		if status, _, stderr := leaf(t, append(append([]string{"tag"}, args...), "-s", url)...); status != exitOK {
			t.Errorf("tag %v: status %d: %s", args, status, stderr)
		}
	}
}

// A --max-id below 1 is refused before the command connects.
func TestTagMaxIDBelowOne(t *testing.T) {
	cleanEnv(t)
	nowhere := freeAddress(t)
	for _, command := range []string{"add", "set"} {
		for _, id := range []string{"0", "-1"} {
			status, _, stderr := leaf(t, "tag", command, "order", "--max-id", id, "-s", nowhere)
			if status != exitUsage || !strings.Contains(stderr, "--max-id is "+id+", not at least 1") {
				t.Errorf("tag %s --max-id %s: status %d: %s", command, id, status, stderr)
			}
		}
	}
}
