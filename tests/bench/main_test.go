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
	if err := run(t.Context(), []string{"-rounds", "1", "-duration", "5ms", "-tags", "100"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1 snowflake ", "over HTTP, 1 ID", "Take ", "generators: 3", "tags: 16",
		"first use ", "100 IDs ", "3 times the capacity",
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
