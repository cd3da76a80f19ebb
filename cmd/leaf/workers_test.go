package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The list may come in pages.
func TestWorkersPrints(t *testing.T) {
	entry := func(worker int, node string, running bool, until string) string {
		return fmt.Sprintf(`{"worker":%d,"node":"%s","running":%v,"acquired":"2026-01-02T03:04:05Z","reported":"2026-01-02T03:04:06Z","reserved_until":"%s"}`,
			worker, node, running, until)
	}
	first := entry(0, "a", true, "2999-01-02T03:04:05Z") + "," + entry(1, "b", false, "2999-01-02T03:04:05Z")
	rest := entry(4, "c", false, "2026-01-02T03:04:05Z")
	url := answering(t, "leaf.admin.workers.list", func(body string) (string, string) {
		if body == `{"from":4}` {
			return `{"registry":"kv","workers":[` + rest + `]}`, ""
		}
		return `{"registry":"kv","workers":[` + first + `],"next":4}`, ""
	})
	wantPrinted(t, url, printing{"workers --json", exitOK, `{"registry":"kv","workers":[` + first + "," + rest + "]}\n",
		""})
	_, stdout, _ := leaf(t, "workers", "-s", url)
	for i, want := range []string{"WORKER NODE STATE", "0 a running", "1 b away", "4 c free"} {
		if line := strings.Join(strings.Fields(strings.Split(stdout, "\n")[i]), " "); !strings.HasPrefix(line, want) {
			t.Errorf("line %q, want %q", line, want)
		}
	}
}

// fakeWorker answers requests about one worker. It counts the requests that would have released it.
type fakeWorker struct {
	url      string
	released atomic.Int64
}

func newFakeWorker(t *testing.T, listed, request, reply, code string) *fakeWorker {
	t.Helper()
	f := &fakeWorker{}
	f.url = answering(t, "leaf.admin.workers.*", func(body string) (string, string) {
		if body == `{"from":7,"limit":1}` {
			return `{"registry":"kv","workers":[` + listed + `]}`, ""
		}
		f.released.Add(1)
		if body != request {
			t.Errorf("asked for %s, want %s", body, request)
		}
		return reply, code
	})
	return f
}

func TestReleaseCommand(t *testing.T) {
	const format = `{"worker":%d,"node":"%s","running":%v,"acquired":"2026-01-02T03:04:05Z","reported":"2026-01-02T03:04:06.007Z","reserved_until":"%s"}`
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	past := soon.Add(-2 * time.Hour)
	rfc := time.RFC3339Nano
	away := fmt.Sprintf(format, 7, "gone", false, soon.Format(rfc))
	request := fmt.Sprintf(`{"worker":7,"node":"gone","reserved_until":"%s","reported":"2026-01-02T03:04:06.007Z"}`, soon.Format(rfc))
	then := soon.Add(-time.Minute)
	reply := fmt.Sprintf(format, 7, "gone", false, then.Format(rfc))
	explained := []string{"7 ", "gone", "away", "2026-01-02", "stopped", "clock", "10s", timeOf(soon)}
	for name, c := range map[string]struct {
		listed, reply, code string
		args                []string
		status              int
		stdout              string
		stderr              []string
		released            int64
	}{
		"confirmed":     {away, reply, "", []string{"7", "--yes"}, exitOK, "worker 7 is free from " + timeOf(then) + " on\n", explained, 1},
		"as JSON":       {away, reply, "", []string{"7", "--yes", "--json"}, exitOK, reply + "\n", explained, 1},
		"not confirmed": {away, reply, "", []string{"7"}, exitUsage, "", append([]string{"--yes"}, explained...), 0},
		"running":       {fmt.Sprintf(format, 7, "busy", true, soon.Format(rfc)), "", "", []string{"7", "--yes"}, exitFailed, "", []string{"held by busy, which is running: stop it", "killed", "3 s", "10 s"}, 0},
		"free":          {fmt.Sprintf(format, 7, "old", false, past.Format(rfc)), "", "", []string{"7"}, exitOK, "worker 7 is free already, since " + timeOf(past) + "\n", nil, 0},
		"free, JSON":    {fmt.Sprintf(format, 7, "old", false, past.Format(rfc)), "", "", []string{"7", "--json"}, exitOK, fmt.Sprintf(format, 7, "old", false, past.Format(rfc)) + "\n", nil, 0},
		"no record":     {"", "", "", []string{"7", "--yes"}, exitFailed, "", []string{"worker 7 has no record"}, 0},
		"refused": {away, `{"code":409,"reason":"conflict","message":"try again at noon"}`, "409", []string{"7", "--yes"}, exitFailed, "",
			[]string{"leaf: try again at noon (409 conflict)"}, 1},
		"no answer": {away, `{`, "", []string{"7", "--yes"}, exitFailed, "", []string{"worker 7 may have been released", "`leaf workers`"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeWorker(t, c.listed, request, c.reply, c.code)
			status, stdout, stderr := leaf(t, append([]string{"workers", "release", "-s", f.url}, c.args...)...)
			if status != c.status || stdout != c.stdout {
				t.Errorf("status %d, %q, want %d, %q; stderr: %s", status, stdout, c.status, c.stdout, stderr)
			}
			for _, want := range c.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr does not say %q: %s", want, stderr)
				}
			}
			if n := f.released.Load(); n != c.released {
				t.Errorf("it asked for a release %d times, want %d", n, c.released)
			}
		})
	}
}

// Only a terminal confirms a release, not a file or a pipe with the right answer. A setting does not either, because it
// would count for every release.
func TestConfirmNeedsATerminal(t *testing.T) {
	folder := t.TempDir()
	file, config := filepath.Join(folder, "answer"), filepath.Join(folder, "leaf.yaml")
	err := errors.Join(os.WriteFile(file, []byte("gone\n"), 0o600), os.WriteFile(config, []byte("yes: true\n"), 0o600))
	opened, errOpen := os.Open(file)
	pipe, in, errPipe := os.Pipe()
	if err := errors.Join(err, errOpen, errPipe); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close(); pipe.Close() })
	if _, err := in.WriteString("gone\n"); err != nil {
		t.Fatal(err)
	}
	in.Close()
	listed := fmt.Sprintf(`{"worker":7,"node":"gone","reserved_until":"%s"}`,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	for name, c := range map[string]struct {
		stdin io.Reader
		env   string
		args  []string
	}{
		"text": {stdin: strings.NewReader("gone\n")}, "a file": {stdin: opened}, "a pipe": {stdin: pipe},
		"a variable": {env: "true"}, "a configuration": {args: []string{"--config", config}},
	} {
		f := newFakeWorker(t, listed, "", "", "")
		if c.env != "" {
			t.Setenv("LEAF_YES", c.env)
		}
		root := newRoot()
		root.SetIn(c.stdin)
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), root, append([]string{"workers", "release", "7", "-s", f.url}, c.args...), &stdout,
			&stderr)
		if status != exitUsage || stdout.String() != "" || f.released.Load() > 0 {
			t.Errorf("%s: status %d, asked %d times, %s%s", name, status, f.released.Load(), &stdout, &stderr)
		}
	}
}
