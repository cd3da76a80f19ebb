//go:build mutations

// Package mutate checks tests: it breaks the code on purpose, one promise at a time, and
// demands that a test finds it. The build tag keeps it out of every program.
package mutate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Edit is a file, the text that it must have exactly once, and the text that replaces it.
// The path of the file is relative to the folder of the package under test.
type Edit [3]string

// Runner runs tests against edited code.
type Runner struct {
	By      string   // the test that finds an edit for which Run names none
	Says    string   // a pattern of what By prints first; default: a test's message or a panic
	Env     []string // added to the environment
	Package string   // the folder of the test, like the path of an edit; default: that of the first edited file
}

// says matches the message of a test or of a kit of tests, and a panic.
const says = `(?m)^\s+\w+\.go:\d+: (.*)|^(panic: .*)`

// Run demands that the test by, a pattern, fails with the edits. By default it is that of the
// Runner. It changes no file, because go test reads the edited ones through an overlay. So the
// mutations run side by side, as many as the flag -parallel says: give each a subtest of its
// own. Edits that no longer fit the code are reported at once; with the flag -short that is all.
func (r Runner) Run(t *testing.T, by string, edits ...Edit) {
	t.Helper()
	pattern := says
	if by == "" {
		by, pattern = r.By, cmp.Or(r.Says, says)
	}
	edited := overlay(t, edits)
	if testing.Short() {
		return
	}
	t.Parallel()
	folder := "./" + cmp.Or(r.Package, filepath.Dir(edits[0][0]))
	command := exec.Command("go", "test", "-vet=off", "-count=1", "-timeout=3m", "-run", anchored(by), folder)
	// A flag of go test would not reach the programs that tests build.
	command.Env = append(append(os.Environ(), r.Env...), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+edited)
	out, err := command.CombinedOutput()
	if err == nil {
		t.Fatalf("%s did not find it", by)
	}
	// The first thing that was wrong, not that too little happened, that it took too long or that
	// the build failed.
	found := regexp.MustCompile(pattern).FindAllString(string(out), -1)
	found = slices.DeleteFunc(found, func(line string) bool {
		return strings.Contains(line, "replay with ") || strings.Contains(line, "panic: test timed out")
	})
	if len(found) == 0 {
		t.Fatalf("%s failed for another reason: %s", by, out)
	}
	t.Logf("%s: %s", by, strings.Join(strings.Fields(found[0]), " "))
}

// anchored is the pattern of go test that matches the whole name of each test, and of its
// subtest after a slash: go test splits a pattern at slashes outside of parentheses.
func anchored(by string) string {
	if !strings.Contains(by, "/") {
		return "^(" + by + ")$"
	}
	tests := strings.Split(by, "|")
	for i, test := range tests {
		tests[i] = "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	}
	return strings.Join(tests, "|")
}

// overlay writes the edited files, and the file that makes go use them.
func overlay(t *testing.T, edits []Edit) string {
	texts := make(map[string]string)
	for _, e := range edits {
		file, before, after := e[0], e[1], e[2]
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		text, ok := texts[path]
		if !ok {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		if n := strings.Count(text, before); n != 1 {
			t.Fatalf("%s has %d times, not once, the text to change: %q", file, n, before)
		}
		texts[path] = strings.Replace(text, before, after, 1)
	}
	dir := t.TempDir()
	replace := make(map[string]string)
	for path, text := range texts {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
