package main

import (
	"os"
	"strings"
	"testing"
)

// The program must work; how fast is not for a test to say.
func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out strings.Builder
	if err := run(t.Context(), []string{"-rounds", "1", "-duration", "5ms", "-tags", "1000", "-ids", "100000"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"over HTTP, 1 ID a request", "metrics, over NATS", "a scrape a second", "a request: the clock, twice, and counting",
		"Take of one ID, over NATS", "Take ", "a connection for each caller, over NATS", "echo ",
		"one ID a call, over NATS", "pool of a tag's IDs", "Next ", "bulk of 100,000 IDs", "Ranges ", "Ranges, step 1,000", "IDs, one by one",
		"segment, IDs a request: 100,000", "snowflake, IDs a request: 1", "IDs a call: 100,000", "Request", "Take",
		"Load and Swap ", "Advance, tags: 16", "a step, tags: 16", "answers late by 12.5ms", "step 1,000, adapted: steady",
		"start to the first ID", "start to all tags read", "bytes beyond a name, tag used once",
		"made over the bus", "first use ", "start until ready", "leaf tag list --json, ms",
		"generators: 3", "strict tag, the client's Next", "1 ID a request", "100 strict tags", "first use of each", "near JetStream",
		"passes its requests on", "IDs a request: 1 ", "domain d12",
	} {
		if !strings.Contains(out.String(), "\n| "+want) {
			t.Errorf("no row %q in:\n%s", want, out.String())
		}
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
}
