package main

import (
	"strings"
	"testing"
)

// Strict and opaque tags are created by a flag, for life, and shown as what they are.
func TestKindsOfTags(t *testing.T) {
	const coupon = `{"tag":"coupon","max_id":"1001","step":1000,"opaque":"d12"}`
	const invoice = `{"tag":"invoice","max_id":"7","step":0,"order":"strict"}`
	var asked []string
	url := answering(t, "leaf.admin.>", func(body string) (string, string) {
		asked = append(asked, body)
		switch {
		case body == `{}`:
			return `{"tags":[` + coupon + `,` + invoice + `,{"tag":"order","max_id":"1001","step":10}],"next":""}`, ""
		case strings.Contains(body, `"ids"`):
			return `{"tag":"coupon","numbers":["9","4711"]}`, ""
		case strings.Contains(body, `"id"`):
			return `{"tag":"coupon","id":"629","number":"9","outcome":"claimed","message":"claimed by one","order":"trend","claims":[],"end":"1001"}`, ""
		case strings.Contains(body, "invoice"):
			return strings.Replace(invoice, "}", `,"was":"7"}`, 1), ""
		}
		return coupon, ""
	})
	t.Setenv("LEAF_OPAQUE", "53") // for life, so not by a variable that is left over
	for _, c := range []struct {
		args   string
		status int
		out    string // of stdout, or of stderr if it fails, with the spaces of a table as one
		sent   string
	}{
		{"tag add coupon", exitOK, "", `{"tag":"coupon"}`},
		{"tag add coupon --opaque", exitOK, "TAG MAX_ID STEP OPAQUE UPDATED DESCRIPTION coupon 1001 1000 d12", `{"tag":"coupon","opaque":"63"}`},
		{"tag add coupon --opaque=53 --step 5", exitOK, "coupon 1001 1000 d12", `{"tag":"coupon","step":5,"opaque":"53"}`},
		{"tag add coupon --opaque=d8", exitUsage, "none of 63, 53 and d9 to d18", ""},
		{"tag add coupon --opaque=", exitUsage, "--opaque", ""},
		{"tag add coupon --opaque d12", exitUsage, "arg", ""},
		{"tag set coupon --opaque=53", exitUsage, "unknown flag", ""},
		{"tag show coupon", exitOK, "coupon 1001 1000 d12", `{"tag":"coupon"}`},
		{"tag reveal coupon 629 5", exitOK, "ID NUMBER 629 9 5 4711", `{"tag":"coupon","ids":["629","5"]}`},
		{"tag reveal coupon 629 5 --json", exitOK, `{"tag":"coupon","ids":[{"id":"629","number":"9"},{"id":"5","number":"4711"}]}`, ""},
		{"tag reveal coupon 5", exitFailed, "has 2 numbers for 1 IDs", ""},
		{"tag reveal coupon 0", exitUsage, "is not an ID", ""},
		{"trace coupon 629", exitOK, "coupon 629: claimed by one number 9 tag claimed below 1001", `{"tag":"coupon","id":"629"}`},

		{"tag add invoice --order strict", exitOK, "invoice 7 strict", `{"tag":"invoice","order":"strict"}`},
		{"tag set invoice --order strict", exitUsage, "unknown flag", ""},
		{"tag show invoice", exitOK, "invoice 7 strict", `{"tag":"invoice"}`},
		{"tag list", exitOK, "order 1001 10", `{}`},
		{"tag list --json", exitOK, `"order":"strict"`, `{}`},
		{"tag list --json", exitOK, `"opaque":"d12"`, `{}`},
		{"tag advance invoice", exitOK, "invoice 7 unchanged", `{"tag":"invoice"}`},
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
		if strings.Contains(c.args, "advance") &&
			!strings.Contains(stderr, "warning: strict tags: 1. After a restore of JetStream") {
			t.Errorf("%s does not warn that it is not enough: %s", c.args, stderr)
		}
	}
}
