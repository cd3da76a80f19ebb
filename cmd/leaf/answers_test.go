package main

import (
	"bufio"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/natskit"
)

// These tests are about answers that no script of tests/cli can get from a generator.

// answering runs a NATS server where requests on the subject get what answer
// returns: a body, and the code of an error if it is one.
func answering(t *testing.T, subject string, answer func(body string) (reply, code string)) (url string) {
	t.Helper()
	cleanEnv(t)
	url = natskit.Start(t).ClientURL()
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
	status = cli.Run(t.Context(), newRoot(), args, &out, &errs)
	return status, out.String(), errs.String()
}

// A tag that fails holds up no other: it comes at the end. Lists come in pages.
func TestAnswers(t *testing.T) {
	const holder = `{"worker":7,"node":"gone","reserved_until":"2999-01-02T03:04:05Z"}`
	url := answering(t, "leaf.admin.>", func(body string) (string, string) {
		switch body {
		case `{}`:
			return `{"tags":[{"tag":"a"},{"tag":"order"}],"next":"order"}`, ""
		case `{"after":"order"}`:
			return `{"tags":[{"tag":"z"}],"unserved":[{"tag":"z z","problem":"p"}],"next":""}`, ""
		case `{"tag":"a"}`:
			return `{"tag":"a","max_id":"7","was":"7","step":5,"unheard":["n2","n1"]}`, ""
		case `{"tag":"order"}`:
			return `{"tag":"order","max_id":"12000","was":"5001","step":5,"unheard":["n1"]}`, ""
		case `{"tag":"nobody"}`:
			return `{"code":404,"reason":"unknown_tag","message":"nobody: unknown tag"}`, "404"
		case `{"from":7,"limit":1}`:
			return `{"registry":"kv","workers":[` + holder + `]}`, ""
		case `{"worker":7,"node":"gone","reserved_until":"2999-01-02T03:04:05Z"}`:
			return `{`, "" // is no answer
		}
		return `{"code":503,"reason":"store_unavailable","message":"damaged"}`, "503"
	})
	const lines = "a 7 unchanged\norder 5001 → 12000\n"
	for _, c := range []struct {
		args           string
		status         int
		stdout, stderr string
	}{
		{"tag advance --all", cli.ExitFailed, lines, "warning: these generators fell silent in the last hour: n1, n2."},
		{"tag advance --all", cli.ExitFailed, lines, "not served are left out: 1"},
		{"tag advance --all", cli.ExitFailed, lines, "leaf: 1 of 3 tags were not advanced (--json lists all):\nz: "},
		{"tag advance --all --json", cli.ExitFailed, `"failed":[{"tag":"z","error":"`, "1 of 3"},
		{"tag advance order a", cli.ExitOK, "order 5001 → 12000\na 7 unchanged\n", ""},
		{"tag advance nobody", cli.ExitFailed, "", "were not advanced (--json lists all):\nnobody: unknown tag"},
		{"workers release 7 --yes", cli.ExitFailed, "", "worker 7 may have been released"},
	} {
		status, stdout, stderr := leaf(t, append(strings.Fields(c.args), "-s", url)...)
		if status != c.status || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("leaf %s: status %d\n%s%swant %d\n%s%s", c.args, status, stdout, stderr, c.status, c.stdout, c.stderr)
		}
	}
}

// Two claims of one ID are an error, also in JSON.
func TestTwoClaimsOfAnID(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		var out strings.Builder
		s := &cli.Session{Out: bufio.NewWriter(&out), JSON: asJSON}
		err := errors.Join(printTraced(s, audit.Trace{Tag: "order", ID: 5, Message: "m",
			Claims: []audit.TracedClaim{{Node: "a"}, {Node: "b"}}}), s.Out.Flush())
		if err == nil || !strings.Contains(err.Error(), "2 claims, and one is allowed") || !strings.Contains(out.String(), "m") {
			t.Errorf("JSON %v: %v\n%s", asJSON, err, &out)
		}
	}
}

// The list of workers comes in pages, too.
func TestPagesOfWorkers(t *testing.T) {
	url := answering(t, "leaf.admin.workers.list", func(body string) (string, string) {
		if body == `{"from":4}` {
			return `{"registry":"kv","workers":[{"worker":4,"node":"c"}]}`, ""
		}
		return `{"registry":"kv","workers":[{"worker":0,"node":"a"}],"next":4}`, ""
	})
	_, stdout, stderr := leaf(t, "workers", "--json", "-s", url)
	if !strings.Contains(stdout, `"node":"a"`) || !strings.Contains(stdout, `"node":"c"`) || strings.Contains(stdout, "next") {
		t.Errorf("%s%s", stdout, stderr)
	}
}

// What was decoded before NATS or the generator fails is printed.
func TestDecodedBeforeAFailure(t *testing.T) {
	url := answering(t, "leaf.decode", func(body string) (string, string) {
		if body == "1" {
			return `{"id":"1","time":"1970-01-01T00:00:00.000Z","unix_ms":0,"worker":7,"sequence":1}`, ""
		}
		return `{"code":500,"reason":"internal","message":"broken"}`, "500"
	})
	status, stdout, stderr := leaf(t, "decode", "1", "2", "3", "-s", url)
	if status != cli.ExitFailed || !strings.Contains(stdout, "7") || strings.Count(stderr, "broken") != 1 {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
}
