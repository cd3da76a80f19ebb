//go:build drills

// Package drills has what needs minutes, root, or programs beyond those of `make test`. A drill asserts safety
// (no ID twice, order, nothing lost, service afterwards) and prints times. `make drills` runs all of them.
package drills

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// hasty is the deadline of callers that measure the longest time without an answer.
const hasty = 500 * time.Millisecond

// system runs a program that must succeed.
func system(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s: drills need root on Linux", name, args, err, out)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	kit.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

// page returns a file of the project, such as docs/moving.md.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	kit.Must(t, err)
	return string(text)
}

// status is what an address answers to a path; 0: it does not answer.
func status(address, path string) int {
	answer, err := (&http.Client{Timeout: time.Second}).Get("http://" + strings.TrimPrefix(address, "http://") + path)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

func awaitStatus(t *testing.T, address, path string, want int) {
	t.Helper()
	what := fmt.Sprintf("%d from %s%s", want, address, path)
	testkit.Eventually(t, what, func() bool { return status(address, path) == want })
}

// unique demands that no ID of the tag came twice, also to different sets of callers.
func unique(t *testing.T, tag string, sets ...*callers.Callers) {
	t.Helper()
	kit.Must(t, callers.Unique(tag, sets...))
}
