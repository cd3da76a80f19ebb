package bustest

import (
	"io"
	"strings"
	"testing"
)

func TestLogEndsWithTheTest(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := &testLog{out: &out}
	io.WriteString(log, "before")
	log.end()
	if n, err := io.WriteString(log, "after"); n != 5 || err != nil || out.String() != "before" {
		t.Errorf("writing after the end: %d, %v; the log is %q", n, err, &out)
	}
}
