package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// answering runs a NATS server where requests on the subject get what answer
// returns: a body, and the code of an error if it is one.
func answering(t *testing.T, subject string, answer func(body string) (reply, code string)) (url string) {
	t.Helper()
	cleanEnv(t)
	url = startNATS(t, &server.Options{}).ClientURL()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe(subject, func(msg *nats.Msg) {
		reply := nats.NewMsg(msg.Reply)
		body, code := answer(string(msg.Data))
		reply.Data = []byte(body)
		if code != "" {
			reply.Header.Set("Nats-Service-Error-Code", code)
		}
		if err := nc.PublishMsg(reply); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return url
}

// leaf runs the program.
func leaf(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	status = run(t.Context(), newRoot(), args, &out, &errs)
	return status, out.String(), errs.String()
}

// printing is a command, and what it prints: all of stdout, and a part of stderr.
type printing struct {
	args           string
	status         int
	stdout, stderr string
}

// wantPrinted runs commands at the NATS server.
func wantPrinted(t *testing.T, url string, rows ...printing) {
	t.Helper()
	for _, c := range rows {
		status, stdout, stderr := leaf(t, append(strings.Fields(c.args), "-s", url)...)
		if status != c.status || stdout != c.stdout || !strings.Contains(stderr, c.stderr) ||
			(stderr != "") != (c.stderr != "") {
			t.Errorf("leaf %s: status %d\n%s%swant %d\n%s%s", c.args, status, stdout, stderr, c.status, c.stdout,
				c.stderr)
		}
	}
}

// A number that is not a snowflake does not hide the others.
func TestDecodePrints(t *testing.T) {
	line := func(id string) string {
		return fmt.Sprintf(`{"id":"%s","time":"2026-01-02T03:04:05.006Z","unix_ms":1767323045006,"worker":7,"sequence":9}`, id)
	}
	url := answering(t, "leaf.decode", func(id string) (string, string) {
		if id == "5" {
			return `{"code":400,"reason":"bad_request","message":"not a snowflake"}`, "400"
		}
		return line(id), ""
	})
	const table = "ID  TIME                      WORKER  SEQUENCE\n" +
		"4   2026-01-02T03:04:05.006Z  7       9\n6   2026-01-02T03:04:05.006Z  7       9\n"
	wantPrinted(t, url,
		printing{"decode 4 6", exitOK, table, ""},
		printing{"decode 4 5 6", exitFailed, table, "5: not a snowflake"},
		printing{"decode --json 4 5 6", exitFailed, line("4") + "\n" + line("6") + "\n", "5: not a snowflake"},
		printing{"decode 5", exitFailed, "", "5: not a snowflake"})
}

// A tag that exists can be changed, and the error says how.
func TestTagAddOfATagThatExists(t *testing.T) {
	url := answering(t, "leaf.admin.tags.create", func(string) (string, string) {
		return `{"code":409,"reason":"exists","message":"the tag exists: order/eu"}`, "409"
	})
	wantPrinted(t, url,
		printing{"tag add order/eu", exitFailed, "",
			"leaf: the tag exists: order/eu (409 exists): to change it, use `leaf tag set order/eu`\n"},
		printing{"tag create order/eu --json", exitFailed, "", `"code":409,"reason":"exists"`})
}

// A tag that fails holds up no other: it comes at the end.
func TestTagAdvance(t *testing.T) {
	url := answering(t, "leaf.admin.tags.*", func(body string) (string, string) {
		switch body {
		case `{}`:
			return `{"tags":[{"tag":"a"},{"tag":"order"}],"next":"order"}`, ""
		case `{"after":"order"}`:
			return `{"tags":[{"tag":"z"}],"unserved":[{"tag":"z z","problem":"p"}],"next":""}`, ""
		case `{"tag":"a"}`:
			return `{"tag":"a","max_id":"7","was":"7","step":5,"unheard":["n2","n1"]}`, ""
		case `{"tag":"order"}`:
			return `{"tag":"order","max_id":"12000","was":"5001","step":5,"unheard":["n1"]}`, ""
		}
		return `{"code":503,"reason":"store_unavailable","message":"damaged"}`, "503"
	})
	const silent = "warning: these generators fell silent in the last hour: n1, n2."
	wantPrinted(t, url,
		printing{"tag advance --all", exitFailed, "a 7 unchanged\norder 5001 → 12000\n", silent},
		printing{"tag advance --all", exitFailed, "a 7 unchanged\norder 5001 → 12000\n",
			"not served stay as they are: 1"},
		printing{"tag advance --all", exitFailed, "a 7 unchanged\norder 5001 → 12000\n",
			"leaf: 1 of 3 tags were not advanced:\nz: damaged"},
		printing{"tag advance order a", exitOK, "order 5001 → 12000\na 7 unchanged\n", silent})
	status, stdout, _ := leaf(t, "tag", "advance", "--all", "--json", "-s", url)
	if status != exitFailed || strings.Count(stdout, "\n") != 1 ||
		!strings.Contains(stdout, `"max_id":"12000","step":5`) ||
		!strings.Contains(stdout, `"was":"5001"`) || !strings.Contains(stdout, `"failed":[{"tag":"z","error":"`) {
		t.Errorf("status %d, %s", status, stdout)
	}
}
