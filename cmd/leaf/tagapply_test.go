package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/internal/cli"
)

// applyText runs leaf tag apply on a file with this text.
func applyText(t *testing.T, url, text string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tags.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return leaf(t, append([]string{"tag", "apply", "-f", file, "-s", url}, args...)...)
}

// Somebody else creates the tag, and then moves its max_id, while the file is applied: it is read again each time.
func TestTagApplyReadsAgain(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	url := answering(t, "leaf.admin.tags.*", func(body string) (string, string) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, body)
		switch len(asked) {
		case 1:
			return `{"code":404,"reason":"unknown_tag","message":"m"}`, "404"
		case 2:
			return `{"code":409,"reason":"exists","message":"m"}`, "409"
		case 3:
			return `{"tag":"a","max_id":"5","step":1}`, ""
		case 4:
			return `{"code":409,"reason":"conflict","message":"m"}`, "409"
		case 5:
			return `{"tag":"a","max_id":"900","step":1}`, ""
		}
		return `{"tag":"a","max_id":"900","step":7,"unheard":["n1"]}`, ""
	})
	status, stdout, stderr := applyText(t, url, "tags:\n- {tag: a, max_id: 10, step: 7}")
	mu.Lock()
	defer mu.Unlock()
	want := []string{`{"tag":"a"}`, `{"tag":"a","max_id":"10","step":7}`, `{"tag":"a"}`, `{"tag":"a","max_id":"10","step":7}`, `{"tag":"a"}`, `{"tag":"a","step":7}`}
	if !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	if status != cli.ExitOK || stdout != "changed a: step 1 → 7\n1 tags: 0 created, 1 changed, 0 unchanged, 0 failed\n" || !strings.Contains(stderr, "silent in the last hour: n1.") {
		t.Errorf("status %d, %q, %s", status, stdout, stderr)
	}
}

// A conflict that reading again does not end is an error, and so is one about the order.
func TestTagApplyConflict(t *testing.T) {
	for text, most := range map[string]int64{"{tag: a, max_id: 10}": 6, "{tag: a, step: 7}": 2} {
		var asked atomic.Int64
		url := answering(t, "leaf.admin.tags.*", func(body string) (string, string) {
			asked.Add(1)
			if body == `{"tag":"a"}` {
				return `{"tag":"a","max_id":"5","step":1}`, ""
			}
			return `{"code":409,"reason":"conflict","message":"no"}`, "409"
		})
		status, stdout, stderr := applyText(t, url, "tags:\n- "+text)
		if status != cli.ExitFailed || !strings.Contains(stderr, "leaf: a: no (409 conflict)") || !strings.Contains(stdout, "0 unchanged, 1 failed\n") || asked.Load() != most {
			t.Errorf("%s: status %d, %q, %s, after %d requests", text, status, stdout, stderr, asked.Load())
		}
	}
}
