package main

import (
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/cli"
)

// Bounds of flags of leaf serve that the scripts of tests/cli leave out: here they need no process each.
func TestServeRefuses(t *testing.T) {
	cleanEnv(t)
	for _, args := range []string{
		"--max-batch 0", "--epoch 99999999999999", "--worker-reserve 999ms", "--worker-grace 0s", "--max-clock-skew 0s",
		"--max-clock-back 2s", "--max-batch 1000000001", "--max-waiting 0", "--max-step 0", "--max-wait 0s", "--max-wait 2m", "--drain-timeout -1s", "--check --drain-timeout 1300000h",
		"--replicas -1", "--replicas 6", "--epoch -1", "--events-max-bytes 0", "--events-max-age 59m", "--events-max-age 876001h",
		"--events-max-age 30d", "--worker-bits 0", "--sequence-bits 0", "--id-bits 64", "--time-unit 5ms",
		"--worker-reserve 8761h", "--worker-grace 8761h", "--tag-refresh 25h", "--mysql u:p@tcp(127.0.0.1:1)/",
		"--max-clock-skew 61m", "--max-clock-back 0s", "--max-clock-wait 0s", "--max-clock-wait 61s",
		"--listen foo", "--listen 127.0.0.1:nats", "--log-level loud", "--log-format xml", "--node a\u00a0b", "--node .a",
	} {
		line := append([]string{"serve", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0"}, strings.Split(args, " ")...)
		if status, stdout, stderr := leaf(t, line...); status != cli.ExitUsage || stdout != "" {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
}
