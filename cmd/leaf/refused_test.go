package main

import (
	"os"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/cli"
)

// Bounds of flags of leaf serve that the scripts of tests/cli leave out: here they need no process each.
func TestServeRefuses(t *testing.T) {
	cleanEnv(t)
	for _, args := range []string{
		"--max-batch 1000000001", "--max-waiting 0", "--max-step 0", "--max-wait 0s", "--max-wait 2m", "--drain-timeout -1s",
		"--replicas -1", "--replicas 6", "--epoch -1", "--events-max-bytes 0", "--events-max-age 59m", "--events-max-age 876001h",
		"--events-max-age 30d", "--worker-bits 0", "--sequence-bits 0", "--id-bits 64", "--time-unit 5ms",
		"--worker-reserve 8761h", "--worker-grace 8761h", "--tag-refresh 25h", "--mysql u:p@tcp(127.0.0.1:1)/",
		"--max-clock-skew 61m", "--max-clock-back 0s", "--max-clock-wait 0s", "--max-clock-wait 61s",
		"--listen foo", "--listen 127.0.0.1:nats", "--log-level loud", "--log-format xml", "--node a\u00a0b", "--node .a",
	} {
		line := append([]string{"serve", "--data-dir", t.TempDir()}, strings.Split(args, " ")...)
		if status, stdout, stderr := leaf(t, line...); status != cli.ExitUsage || stdout != "" {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
}

// Each secret of a generator has a file, and what is read from there is checked as if it was given.
func TestSecretsInFilesAreChecked(t *testing.T) {
	cleanEnv(t)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"dsn": "u:hunter2@tcp(127.0.0.1:1)/\n", "token": "hunter2 b\n", "three": "hunter2\nb\r\nc\n"} { // no database
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, say := range map[string]string{
		"serve --data-dir d --mysql-file dsn":        "--mysql: ",
		"serve --data-dir d --http-token-file token": "--http-token: an HTTP header cannot carry it",
		"serve --data-dir d --http-token-file three": "--http-token has 3 lines",
		"migrate --mysql-file dsn":                   "--mysql: ",
	} {
		status, _, stderr := leaf(t, strings.Fields(args)...)
		if status != cli.ExitUsage || !strings.Contains(stderr, say) || strings.Contains(stderr, "hunter2") {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
}
