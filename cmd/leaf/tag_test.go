package main

import (
	"strings"
	"testing"
)

// A tag that exists can be changed, and the error says how.
func TestTagAddOfATagThatExists(t *testing.T) {
	url := answering(t, "leaf.admin.tags.create", func(string) (string, string) {
		return `{"code":409,"reason":"exists","message":"the tag exists: order/eu"}`, "409"
	})
	status, _, stderr := leaf(t, "tag", "add", "order/eu", "-s", url)
	if want := "leaf: the tag exists: order/eu (409 exists): to change it, use `leaf tag set order/eu`\n"; status != exitFailed || stderr != want {
		t.Errorf("status %d, %q, want %q", status, stderr, want)
	}
	if _, _, stderr = leaf(t, "tag", "add", "order/eu", "--json", "-s", url); !strings.Contains(stderr, `"code":409,"reason":"exists"`) {
		t.Errorf("as JSON %s", stderr)
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
