package main

import (
	"strings"
	"testing"
)

// An opaque tag is created by --opaque, and shown with its domain. Its IDs are revealed and traced by their numbers.
func TestTagOpaque(t *testing.T) {
	coupon := `{"tag":"coupon","max_id":"1001","step":1000,"opaque":"d12"}`
	var asked []string
	url := answering(t, "leaf.admin.>", func(body string) (string, string) {
		asked = append(asked, body)
		switch {
		case body == `{}`:
			return `{"tags":[` + coupon + `,{"tag":"order","max_id":"7","step":10}],"next":""}`, ""
		case strings.Contains(body, `"ids"`):
			return `{"tag":"coupon","numbers":["9","4711"]}`, ""
		case strings.Contains(body, `"id"`):
			return `{"tag":"coupon","id":"629411444004","number":"9","outcome":"claimed","message":"claimed by one","order":"trend","claims":[],"end":"1001"}`, ""
		}
		return coupon, ""
	})
	for _, c := range []struct {
		args   string
		status int
		out    string // of stdout, or of stderr if it fails, with the spaces of a table as one
		sent   string
	}{
		{"tag add coupon --opaque", exitOK, "TAG MAX_ID STEP OPAQUE UPDATED DESCRIPTION coupon 1001 1000 d12", `{"tag":"coupon","opaque":"63"}`},
		{"tag add coupon --opaque=d12", exitOK, "coupon 1001 1000 d12", `{"tag":"coupon","opaque":"d12"}`},
		{"tag add coupon --opaque=53 --step 5", exitOK, "", `{"tag":"coupon","step":5,"opaque":"53"}`},
		{"tag add coupon --opaque=d8", exitUsage, "none of 63, 53 and d9 to d18", ""},
		{"tag add coupon --opaque=", exitUsage, "--opaque", ""},
		{"tag add coupon --opaque d12", exitUsage, "arg", ""},
		{"tag set coupon --opaque=53", exitUsage, "unknown flag", ""},
		{"tag list", exitOK, "order 7 10", `{}`},
		{"tag list --json", exitOK, `"opaque":"d12"`, `{}`},
		{"tag show coupon", exitOK, "coupon 1001 1000 d12", `{"tag":"coupon"}`},
		{"tag reveal coupon 629411444004 5", exitOK, "ID NUMBER 629411444004 9 5 4711", `{"tag":"coupon","ids":["629411444004","5"]}`},
		{"tag reveal coupon 629411444004 5 --json", exitOK, `{"tag":"coupon","ids":[{"id":"629411444004","number":"9"},{"id":"5","number":"4711"}]}`, ""},
		{"tag reveal coupon 5", exitFailed, "has 2 numbers for 1 IDs", ""},
		{"tag reveal coupon 0", exitUsage, "is not an ID", ""},
		{"tag reveal coupon", exitUsage, "arg", ""},
		{"trace coupon 629411444004", exitOK, "coupon 629411444004: claimed by one number 9 tag claimed below 1001", `{"tag":"coupon","id":"629411444004"}`},
	} {
		asked = nil
		status, stdout, stderr := leaf(t, append(strings.Fields(c.args), "-s", url)...)
		out := stdout
		if c.status != exitOK {
			out = stderr
		}
		if status != c.status || !strings.Contains(strings.Join(strings.Fields(out), " "), c.out) {
			t.Errorf("%s: status %d, %s%s; want %d and %q", c.args, status, stdout, stderr, c.status, c.out)
		}
		if c.sent != "" && strings.Join(asked, " ") != c.sent || c.status == exitUsage && len(asked) > 0 {
			t.Errorf("%s asks for %q, want %s", c.args, asked, c.sent)
		}
	}
}

// The shell completes domains, and no command but add has the flag: a domain cannot be changed.
func TestTagOpaqueFlag(t *testing.T) {
	cleanEnv(t)
	_, stdout, _ := leaf(t, "__complete", "tag", "add", "coupon", "--opaque=")
	if !strings.HasPrefix(stdout, "63\tbits\n53\tbits, for JavaScript\nd9\t") {
		t.Errorf("completed to %q", stdout)
	}
	t.Setenv("LEAF_OPAQUE", "53") // for life, so not by a variable that is left over
	var asked string
	url := answering(t, "leaf.admin.>", func(body string) (string, string) {
		asked = body
		return `{"tag":"order","max_id":"1","step":1000}`, ""
	})
	if status, _, stderr := leaf(t, "tag", "add", "order", "-s", url); status != exitOK || asked != `{"tag":"order"}` {
		t.Errorf("status %d, %s; it asks for %s", status, stderr, asked)
	}
	for _, command := range []string{"set", "list", "show", "rm", "advance", "reveal"} {
		if _, help, _ := leaf(t, "tag", command, "--help"); strings.Contains(help, "--opaque") {
			t.Errorf("the help of tag %s has --opaque:\n%s", command, help)
		}
	}
}
