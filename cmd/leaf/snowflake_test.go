package main

import (
	"bytes"
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
	var out, errs bytes.Buffer
	status = run(t.Context(), newRoot(), args, &out, &errs)
	return status, out.String(), errs.String()
}

// All arguments are checked before the command connects.
func TestDecodeRefuses(t *testing.T) {
	cleanEnv(t)
	nowhere := freeAddress(t)
	for _, args := range [][]string{{}, {"x"}, {""}, {"1.5"}, {"0x10"}, {"9223372036854775808"}, {"1", "x"}} {
		status, stdout, stderr := leaf(t, append([]string{"decode", "-s", nowhere}, args...)...)
		if status != exitUsage || stdout != "" {
			t.Errorf("decode %q: status %d, %s%s", args, status, stdout, stderr)
		}
	}
}

// A number that is not a snowflake does not hide the others.
func TestDecodePrints(t *testing.T) {
	url := answering(t, "leaf.decode", func(id string) (string, string) {
		if id == "5" {
			return `{"code":400,"reason":"bad_request","message":"not a snowflake"}`, "400"
		}
		return fmt.Sprintf(`{"id":"%s","time":"2026-01-02T03:04:05.006Z","unix_ms":1767323045006,"worker":7,"sequence":9}`, id), ""
	})
	line := func(id string) string {
		return fmt.Sprintf(`{"id":"%s","time":"2026-01-02T03:04:05.006Z","unix_ms":1767323045006,"worker":7,"sequence":9}`+"\n", id)
	}
	for _, c := range []struct {
		args   []string
		status int
		stdout string
	}{
		{[]string{"4", "6"}, exitOK, "ID  TIME                      WORKER  SEQUENCE\n" +
			"4   2026-01-02T03:04:05.006Z  7       9\n6   2026-01-02T03:04:05.006Z  7       9\n"},
		{[]string{"4", "5", "6"}, exitFailed, "ID  TIME                      WORKER  SEQUENCE\n" +
			"4   2026-01-02T03:04:05.006Z  7       9\n6   2026-01-02T03:04:05.006Z  7       9\n"},
		{[]string{"--json", "4", "5", "6"}, exitFailed, line("4") + line("6")},
		{[]string{"5"}, exitFailed, ""},
	} {
		status, stdout, stderr := leaf(t, append([]string{"decode", "-s", url}, c.args...)...)
		if status != c.status || stdout != c.stdout || (status != exitOK) != strings.Contains(stderr, "5: not a snowflake") {
			t.Errorf("decode %v: status %d, %s%s; want %d, %s", c.args, status, stdout, stderr, c.status, c.stdout)
		}
	}
}
