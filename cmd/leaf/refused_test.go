package main

import (
	"os"
	"strings"
	"testing"
)

// Mistakes in arguments and files are found before a command connects, writes or listens. They have the status of wrong
// usage: of an audit, 1 means that there is a contradiction.
func TestRefusals(t *testing.T) {
	cleanEnv(t)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"bare": "1-5\n\n7\n", "named": "order 1-5\nshop.a 7\n", "backwards": "1-5\n5-1\n", "bad": "a*b 1\n",
		"dsn": "u:hunter2@tcp(127.0.0.1:1)/\n", "token": "a b\n", // the DSN names no database
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	nowhere := freeAddress(t)
	t.Setenv("LEAF_ALL", "true") // it counts only on the command line
	for command, refused := range map[string]map[string]string{
		"decode": {"": "", "x": "", "1.5": "", "0x10": "", "9223372036854775808": "", "1 x": ""},
		"trace": {"": "", "order": "", "order 1 2": "", "order x": "", "order 0": "", "order 9223372036854775808": "",
			"--snowflake x": "", "--snowflake 5 order 1": ""},
		"tag add":     {"order --max-id 0": "--max-id is 0, not at least 1", "": ""},
		"tag set":     {"order --max-id -1": "--max-id is -1, not at least 1"},
		"tag advance": {"": "name the tags, or give --all", "--all order": "name the tags, or give --all"},
		"audit": {
			"--taken bare": "line 1: it names no tag", "order --taken backwards": `line 2: "5-1" is no range`, "order --taken bad": "line 1",
			"order --taken none": "--taken", "order --taken - --taken-snowflakes -": "stdin"},
		"workers release": {"x": `"x"`, "-- -7": `"-7"`, "7 8": "arg", "": "arg"},
		"nodes":           {"--wait 5m": "", "--wait-redundant --wait 0": "", "--wait-redundant x": ""},
	} {
		for args, say := range refused {
			line := strings.Fields(command + " -s " + nowhere + " " + args)
			status, stdout, stderr := leaf(t, line...)
			if status != exitUsage || stdout != "" || !strings.Contains(stderr, say) {
				t.Errorf("%q: status %d, %s%s; want %q", line, status, stdout, stderr, say)
			}
		}
	}
	for _, args := range []string{"audit order --taken bare", "audit --taken named --taken-snowflakes bare"} {
		if status, _, stderr := leaf(t, strings.Fields(args+" -s "+nowhere)...); status != exitNobody {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
	for args, say := range map[string]string{
		"--id-bits 53 --sequence-bits 12": "ends at 2010-11-28T22:14:18.305Z: give the time more bits (more --id-bits, " +
			"or fewer --worker-bits or --sequence-bits), a longer --time-unit, or a later --epoch",
		"--id-bits 51": "1 of sequence; this has 41 bits of 1 ms, 10 and 0", "--time-unit 1s": "after the year 9999",
		"--id-bits 70": "the bits of a layout are 70 together, more than 63", "--time-unit 5ms": "want 1ms, 10ms, 100ms or 1s", "extra": "",
	} {
		if status, stdout, stderr := leaf(t, strings.Fields("layout "+args)...); status != exitUsage || stdout != "" ||
			!strings.Contains(stderr, say) {
			t.Errorf("layout %s: status %d, %s%s; want %q", args, status, stdout, stderr, say)
		}
	}
	// Each secret of a generator has a file, and what is read from there is checked as if it was given.
	for args, say := range map[string]string{
		"serve --data-dir d --mysql-file dsn":        "--mysql: ",
		"serve --data-dir d --http-token-file token": "--http-token: an HTTP header cannot carry it",
		"migrate --mysql-file dsn":                   "--mysql: ",
	} {
		status, _, stderr := leaf(t, strings.Fields(args)...)
		if status != exitUsage || !strings.Contains(stderr, say) || strings.Contains(stderr, "hunter2") {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
}

// The bounds of each flag of leaf serve.
func TestServeRefuses(t *testing.T) {
	cleanEnv(t)
	for _, args := range []string{
		"--max-batch 0", "--max-batch 1000000001", "--max-waiting 0", "--max-step 0", "--max-wait 0s", "--max-wait 2m", "--drain-timeout -1s",
		"--replicas -1", "--replicas 6", "--epoch -1", "--epoch 99999999999999", "--events-max-bytes 0", "--events-max-age 59m",
		"--events-max-age 876001h", "--events-max-age 30d", "--worker-id 1024", "--worker-id 1-2", "--worker-range 9-3",
		"--worker-id 1 --worker-range 1-2", "--worker-bits 0", "--sequence-bits 0", "--worker-bits 22", "--id-bits 64", "--id-bits 51",
		"--id-bits -1", "--time-unit 5ms", "--time-unit 0s", "--time-unit 2s",
		"--time-unit 1s", "--worker-bits 1 --sequence-bits 1", // these end after the year 9999
		"--worker-reserve 999ms", "--worker-reserve 8761h", "--worker-grace 999ms", "--worker-grace 8761h", "--tag-refresh 99ms",
		"--tag-refresh 25h", "--mysql nonsense", "--shared-table", "--mysql u:p@tcp(127.0.0.1:1)/", "--max-clock-skew 9ms",
		"--max-clock-skew 61m", "--max-clock-back 0s", "--max-clock-back 1001ms", "--max-clock-wait 0s", "--max-clock-wait 61s",
		"--listen foo", "--listen 4222", "--listen 127.0.0.1:nats", "--listen 127.0.0.1:65536", "--log-level loud", "--log-format xml",
		"--node a\u00a0b", "--node .a", "--node a..b", "extra",
	} {
		line := append([]string{"serve", "--data-dir", t.TempDir()}, strings.Split(args, " ")...)
		if status, stdout, stderr := leaf(t, line...); status != exitUsage || stdout != "" {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
}
