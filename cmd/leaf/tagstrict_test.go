package main

import (
	"strings"
	"testing"
)

// strictTags answers for the strict tag invoice and the tag order.
func strictTags(t *testing.T) (url string, asked *[]string) {
	t.Helper()
	asked = new([]string)
	invoice := `{"tag":"invoice","max_id":"7","step":0,"order":"strict"}`
	return answering(t, "leaf.admin.tags.*", func(body string) (string, string) {
		*asked = append(*asked, body)
		switch body {
		case `{}`:
			return `{"tags":[` + invoice + `,{"tag":"order","max_id":"1001","step":1000,"order":"trend"}],"next":""}`, ""
		case `{"tag":"invoice","order":"strict"}`, `{"tag":"invoice"}`:
			return strings.Replace(invoice, "}", `,"was":"7"}`, 1), ""
		case `{"tag":"order"}`:
			return `{"tag":"order","max_id":"1001","step":1000,"order":"trend","was":"1001"}`, ""
		}
		return `{"code":400,"reason":"bad_request","message":"a strict tag has no step"}`, "400"
	}), asked
}

// A strict tag is created by --order strict, and shown with its order.
func TestTagStrict(t *testing.T) {
	url, asked := strictTags(t)
	for _, c := range []struct {
		args   string
		status int
		stdout string // with the spaces of a table as one
		sent   string
	}{
		{"add invoice --order strict", exitOK, "TAG MAX_ID STEP UPDATED DESCRIPTION invoice 7 strict", `{"tag":"invoice","order":"strict"}`},
		{"show invoice", exitOK, "TAG MAX_ID STEP UPDATED DESCRIPTION invoice 7 strict", `{"tag":"invoice"}`},
		{"list", exitOK, "invoice 7 strict", `{}`},
		{"list", exitOK, "order 1001 1000", `{}`},
		{"list --json", exitOK, `{"tag":"invoice","max_id":"7","step":0,`, `{}`},
		{"list --json", exitOK, `"order":"strict"`, `{}`},
		{"advance invoice", exitOK, "invoice 7 unchanged", `{"tag":"invoice"}`},
		{"advance --all", exitOK, "invoice 7 unchanged order 1001 unchanged", ""},
		{"add invoice --order strict --step 5", exitFailed, "", `{"tag":"invoice","step":5,"order":"strict"}`},
	} {
		*asked = nil
		status, stdout, stderr := leaf(t, append(append([]string{"tag"}, strings.Fields(c.args)...), "-s", url)...)
		if status != c.status || !strings.Contains(strings.Join(strings.Fields(stdout), " "), c.stdout) {
			t.Errorf("tag %s: status %d, %s%s; want %d and %q", c.args, status, stdout, stderr, c.status, c.stdout)
		}
		if c.sent != "" && strings.Join(*asked, " ") != c.sent {
			t.Errorf("tag %s asks for %q, want %s", c.args, *asked, c.sent)
		}
		if strings.Contains(c.args, "advance") && !strings.Contains(stderr, "warning: strict tags: 1. After a restore of JetStream") {
			t.Errorf("tag %s does not warn that it is not enough: %s", c.args, stderr)
		}
		if c.status != exitOK && !strings.Contains(stderr, "a strict tag has no step") {
			t.Errorf("tag %s: %s", c.args, stderr)
		}
	}
}

// The shell completes the orders, and no command but add has the flag: an order cannot be changed.
func TestTagOrderFlag(t *testing.T) {
	cleanEnv(t)
	_, stdout, _ := leaf(t, "__complete", "tag", "add", "invoice", "--order", "")
	if !strings.HasPrefix(stdout, "trend\nstrict\n:4\n") { // 4: no file names
		t.Errorf("completed to %q", stdout)
	}
	for _, command := range []string{"set", "list", "show", "rm", "advance"} {
		if _, help, _ := leaf(t, "tag", command, "--help"); strings.Contains(help, "--order ") {
			t.Errorf("the help of tag %s has --order:\n%s", command, help)
		}
	}
	if _, help, _ := leaf(t, "tag", "add", "--help"); !strings.Contains(help, "--order ORDER") || strings.Contains(help, "LEAF_ORDER") {
		t.Errorf("the help of tag add:\n%s", help)
	}
}
