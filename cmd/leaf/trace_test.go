package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// tracing answers for three IDs of order and two snowflakes.
func tracing(t *testing.T) (url string, replies map[string]string) {
	t.Helper()
	when := func(second int) string { return at(second).UTC().Format(time.RFC3339) }
	claim := func(node string) string {
		return fmt.Sprintf(`{"node":"%s","time":"%s","first":"4001","last":"5000","cause":"demand"}`, node, when(5))
	}
	decoded := `"decoded":{"id":"77","time":"2026-01-02T03:04:05.006Z","unix_ms":1767323045006,"worker":7,"sequence":9}`
	replies = map[string]string{
		`{"tag":"order","id":"4711"}`: `{"tag":"order","id":"4711","outcome":"claimed","message":"by n\u001b1","claims":[` + claim("n1") +
			`],"since":"` + when(1) + `","end":"5001"}`,
		`{"tag":"order","id":"4712"}`: `{"tag":"order","id":"4712","outcome":"claimed","message":"claimed 2 times","claims":[` + claim("n1") + "," + claim("n2") + `],"end":"5001"}`,
		`{"tag":"invoice","id":"5"}`: `{"tag":"invoice","id":"5","outcome":"claimed","message":"the last claim","order":"strict","claims":[{"node":"n1","time":"` +
			when(2) + `","first":"5","last":"6","record":true}],"end":"7"}`,
		`{"snowflake":"77"}`: `{"id":"77","outcome":"claimed","message":"held by n1","claims":[{"node":"n1","time":"` + when(2) + `","record":true}],` +
			decoded + `,"reserved_until":"` + when(9) + `"}`,
	}
	return answering(t, "leaf.admin.trace", func(body string) (string, string) {
		if reply := replies[body]; reply != "" {
			return reply, ""
		}
		return `{"code":404,"reason":"unknown_tag","message":"unknown"}`, "404"
	}), replies
}

func TestTracePrints(t *testing.T) {
	url, replies := tracing(t)
	claimed := "claimed at         2026-01-02T03:04:05.000Z\nrange              4001-5000\ncause              demand\n"
	for _, c := range []struct {
		args, request string
		status        int
		stdout        string
	}{
		{"order 4711", `{"tag":"order","id":"4711"}`, 0, "order 4711: by n 1\ngenerator          n1\n" + claimed +
			"tag claimed below  5001\nevents since       2026-01-02T03:04:01.000Z\n"},
		{"order 4712", `{"tag":"order","id":"4712"}`, 1, "order 4712: claimed 2 times\ngenerator          n1\n" + claimed +
			"generator          n2\n" + claimed + "tag claimed below  5001\n"},
		{"invoice 5", `{"tag":"invoice","id":"5"}`, 0, `invoice 5: the last claim
generator          n1
claimed at         2026-01-02T03:04:02.000Z
range              5-6
source             the record; a strict tag has no events of its claims
order              strict
tag claimed below  7
`},
		{"--snowflake 77", `{"snowflake":"77"}`, 0, `snowflake 77: held by n1
generator             n1
held since            2026-01-02T03:04:02.000Z
source                the record; no event has it
time                  2026-01-02T03:04:05.006Z
worker                7
sequence              9
worker claimed until  2026-01-02T03:04:09.000Z
`},
	} {
		args := append([]string{"trace", "-s", url}, strings.Fields(c.args)...)
		status, stdout, stderr := leaf(t, args...)
		if status != c.status || stdout != c.stdout {
			t.Errorf("trace %s: status %d, %s%s; want %d, %s", c.args, status, stdout, stderr, c.status, c.stdout)
		}
		if c.status == 1 && !strings.Contains(stderr, "2 claims, and one is allowed") {
			t.Errorf("trace %s: %s", c.args, stderr)
		}
		if status, stdout, _ := leaf(t, append(args, "--json")...); status != c.status || stdout != replies[c.request]+"\n" && !strings.Contains(stdout, `\u001b`) {
			t.Errorf("trace %s --json: status %d, %s", c.args, status, stdout)
		}
	}
	if status, stdout, stderr := leaf(t, "trace", "nobody", "1", "-s", url); status != exitFailed || stdout != "" || !strings.Contains(stderr, "unknown_tag") {
		t.Errorf("of an unknown tag: status %d, %s%s", status, stdout, stderr)
	}
}

// All arguments are checked before the command connects.
func TestTraceRefuses(t *testing.T) {
	cleanEnv(t)
	nowhere := freeAddress(t)
	for _, args := range []string{
		"", "order", "order 1 2", "order x", "order 0", "order 9223372036854775808", "--snowflake x", "--snowflake 5 order 1",
	} {
		status, stdout, stderr := leaf(t, append([]string{"trace", "-s", nowhere}, strings.Fields(args)...)...)
		if status != exitUsage || stdout != "" {
			t.Errorf("trace %s: status %d, %s%s", args, status, stdout, stderr)
		}
	}
}
