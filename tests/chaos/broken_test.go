package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestBreakages: each breakage is complete, and its edits fit the code as it is now.
func TestBreakages(t *testing.T) {
	var (
		named  []string
		checks = strings.Fields(
			"twice order floor limit paused end deleted domain reveal installation audit alert ready leak")
		names = make(map[string]bool)
	)
	for _, f := range faults {
		named = append(named, f.name)
	}
	for _, b := range breakages {
		t.Run(b.name, func(t *testing.T) {
			if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(b.name) || names[b.name] {
				t.Error("the name is not in kebab-case, or another breakage has it: choose another name")
			}
			names[b.name] = true
			if !strings.HasSuffix(b.why, ".") || len(b.edits) == 0 {
				t.Error("it needs a sentence that says what is wrong, and an edit")
			}
			for what, used := range map[string]struct{ have, known []string }{
				"fault": {b.faults, named}, "store": {b.stores, bothStores}, "check": {b.checks, checks},
			} {
				if len(used.have) == 0 && what != "fault" {
					t.Errorf("it names no %s: add one", what)
				}
				for _, name := range used.have {
					if !slices.Contains(used.known, name) {
						t.Errorf("there is no %s %q: go run ./tests/chaos -list shows all", what, name)
					}
				}
			}
			checkEdits(t, b.edits)
		})
	}
}

// checkEdits applies the edits of a breakage one after the other, as a build does.
func checkEdits(t *testing.T, edits []edit) {
	texts := make(map[string]string)
	for _, e := range edits {
		text, ok := texts[e.File]
		if !ok {
			data, err := os.ReadFile(filepath.Join("..", "..", e.File))
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		if n := strings.Count(text, e.Before); n != 1 || e.Before == e.After {
			t.Errorf("%s has this text %d times, not once, or the edit changes nothing: fit it to the code: %q",
				e.File, n, e.Before)
		}
		texts[e.File] = strings.Replace(text, e.Before, e.After, 1)
	}
}
