package main

import (
	"strings"
	"sync/atomic"
	"testing"
)

// advancing answers for three tags in two pages: order moves, a stays, and z cannot be read.
func advancing(t *testing.T) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	return answering(t, "leaf.admin.tags.*", func(body string) (string, string) {
		switch body {
		case `{}`:
			return `{"tags":[{"tag":"a"},{"tag":"order"}],"next":"order"}`, ""
		case `{"after":"order"}`:
			return `{"tags":[{"tag":"z"}],"unserved":[{"tag":"z z","problem":"p"}],"next":""}`, ""
		case `{"tag":"a"}`:
			asked.Add(1)
			return `{"tag":"a","max_id":"7","was":"7","step":5,"unheard":["n2","n1"]}`, ""
		case `{"tag":"order"}`:
			asked.Add(1)
			return `{"tag":"order","max_id":"12000","was":"5001","step":5,"unheard":["n1"]}`, ""
		}
		asked.Add(1)
		return `{"code":503,"reason":"store_unavailable","message":"damaged"}`, "503"
	}), asked
}

// A tag that fails holds up no other: it comes at the end.
func TestTagAdvanceAll(t *testing.T) {
	url, _ := advancing(t)
	status, stdout, stderr := leaf(t, "tag", "advance", "--all", "-s", url)
	if status != exitFailed || stdout != "a 7 unchanged\norder 5001 → 12000\n" {
		t.Errorf("status %d, %q", status, stdout)
	}
	for _, want := range []string{
		"not served stay as they are: 1", "warning: these generators fell silent in the last hour: n1, n2.",
		"leaf: 1 of 3 tags were not advanced:\nz: ", "damaged",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr does not say %q: %s", want, stderr)
		}
	}
	status, stdout, _ = leaf(t, "tag", "advance", "--all", "--json", "-s", url)
	if status != exitFailed || strings.Count(stdout, "\n") != 1 || !strings.Contains(stdout, `"max_id":"12000","step":5`) ||
		!strings.Contains(stdout, `"was":"5001"`) || !strings.Contains(stdout, `"failed":[{"tag":"z","error":"`) {
		t.Errorf("status %d, %s", status, stdout)
	}
}

func TestTagAdvanceNamedTags(t *testing.T) {
	url, asked := advancing(t)
	status, stdout, stderr := leaf(t, "tag", "advance", "order", "a", "-s", url)
	if status != exitOK || stdout != "order 5001 → 12000\na 7 unchanged\n" || asked.Load() != 2 {
		t.Errorf("status %d, %q, %s, after %d requests", status, stdout, stderr, asked.Load())
	}
}

// Neither all tags nor none are advanced by mistake.
func TestTagAdvanceWantsTags(t *testing.T) {
	url, asked := advancing(t)
	t.Setenv("LEAF_ALL", "true")
	for _, args := range [][]string{{}, {"--all", "order"}} {
		status, _, stderr := leaf(t, append([]string{"tag", "advance", "-s", url}, args...)...)
		if status != exitUsage || !strings.Contains(stderr, "name the tags, or give --all") || asked.Load() > 0 {
			t.Errorf("%v: status %d: %s", args, status, stderr)
		}
	}
}
