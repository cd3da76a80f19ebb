package main

import (
	"strings"
	"testing"
)

func TestTracePrints(t *testing.T) {
	const (
		claim   = `{"node":"n1","time":"2026-01-02T03:04:05Z","first":"4001","last":"5000","cause":"demand"}`
		record  = `"claims":[{"node":"n1","time":"2026-01-02T03:04:02Z","first":"5","last":"6","record":true}]`
		claimed = "generator          n1\nclaimed at         2026-01-02T03:04:05.000Z\nrange              4001-5000\ncause              demand\n"
	)
	replies := map[string]string{
		`{"tag":"order","id":"4711"}`: `{"tag":"order","id":"4711","outcome":"claimed","message":"by n1","claims":[` + claim +
			`],"since":"2026-01-02T03:04:01Z","end":"5001"}`,
		`{"tag":"order","id":"4712"}`: `{"tag":"order","id":"4712","outcome":"claimed","message":"claimed 2 times","claims":[` +
			claim + "," + claim + `],"end":"5001"}`,
		`{"tag":"invoice","id":"5"}`: `{"tag":"invoice","id":"5","outcome":"claimed","message":"the last","order":"strict",` + record + `,"end":"7"}`,
		`{"snowflake":"77"}`: `{"id":"77","outcome":"claimed","message":"held","claims":[{"node":"n1","time":"2026-01-02T03:04:02Z","record":true}],` +
			`"decoded":{"id":"77","time":"2026-01-02T03:04:05.006Z","unix_ms":1767323045006,"worker":7,"sequence":9},` +
			`"reserved_until":"2026-01-02T03:04:09Z"}`,
	}
	url := answering(t, "leaf.admin.trace", func(body string) (string, string) {
		if reply := replies[body]; reply != "" {
			return reply, ""
		}
		return `{"code":404,"reason":"unknown_tag","message":"unknown"}`, "404"
	})
	wantPrinted(t, url,
		printing{"trace order 4711", exitOK, "order 4711: by n1\n" + claimed +
			"tag claimed below  5001\nevents since       2026-01-02T03:04:01.000Z\n", ""},
		printing{"trace order 4712", exitFailed, "order 4712: claimed 2 times\n" + claimed + claimed + "tag claimed below  5001\n",
			"2 claims, and one is allowed"},
		printing{"trace order 4711 --json", exitOK, replies[`{"tag":"order","id":"4711"}`] + "\n", ""},
		printing{"trace invoice 5", exitOK, `invoice 5: the last
generator          n1
claimed at         2026-01-02T03:04:02.000Z
range              5-6
source             the record; a strict tag has no events of its claims
order              strict
tag claimed below  7
`, ""},
		printing{"trace --snowflake 77", exitOK, strings.TrimPrefix(`
snowflake 77: held
generator             n1
held since            2026-01-02T03:04:02.000Z
source                the record; no event has it
time                  2026-01-02T03:04:05.006Z
worker                7
sequence              9
worker claimed until  2026-01-02T03:04:09.000Z
`, "\n"), ""},
		printing{"trace nobody 1", exitFailed, "", "unknown_tag"})
}
