package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// anchors are those that GitHub gives the headings of a page.
func anchors(text string) (found []string) {
	for _, m := range find("(?m)^#+ (.*)$", text) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found = append(found, strings.ReplaceAll(anchor, " ", "-"))
	}
	return found
}

// Each link between the pages leads to a file, and to a heading in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	links := 0
	for _, page := range pages(t) {
		for _, m := range find(`\]\(([^)\s]+)\)`, read(t, page)) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path.Join(path.Dir(page), file)
			if file == "" {
				target = page
			}
			if _, err := os.Stat("../../" + target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s links to %s, and that has no such heading", page, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

// The README is short. What is longer is a page of docs.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	if n := strings.Count(read(t, "README.md"), "\n"); n > 180 {
		t.Errorf("the README has %d lines, at most 180 are allowed", n)
	}
}

// ARCHITECTURE.md names files and folders of Go code that exist.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\b(?:bus|snowflake|allocator|schema|tests|cmd)/[a-z]+(?:/[a-z]+)*(?:\.go)?`).
		FindAllString(read(t, "ARCHITECTURE.md"), -1)
	if len(named) < 20 {
		t.Fatalf("it names only %q", named)
	}
	for _, name := range named {
		if _, err := os.Stat("../../" + name); err != nil {
			t.Error(err)
		}
	}
}

// Each check that docs/proof.md names is one of the tests.
func TestProofNamesChecks(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, pattern := range []string{"*/mutations*_test.go", "*/*/mutations*_test.go",
		"allocator/allocatortest/*.go", "tests/chaos/*.go", "tests/chaos/judge/*.go"} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no file is %s: %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(data)
		}
	}
	names := 0
	for _, row := range find(`(?m)^\|.*\|.*\| (.*(?:chaos|mutation|conformance) .*) \|$`, read(t, "docs/proof.md")) {
		for _, m := range find("`([^`/]+)`", row[1]) {
			if m[1] == "allocator" || m[1] == "snowflake" {
				continue // their simulations
			}
			if names++; !strings.Contains(code.String(), `"`+m[1]+`"`) {
				t.Errorf("docs/proof.md names %q, and no check has this name", m[1])
			}
		}
	}
	if names < 30 {
		t.Errorf("only %d names were found", names)
	}
}
