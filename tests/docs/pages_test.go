package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/tests/kit"
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

// A text of the program or of deploy, and a comment, that sends its reader to a page names one that is there.
func TestPagesNamedInTheCodeExist(t *testing.T) {
	t.Parallel()
	named := 0
	kit.Must(t, filepath.WalkDir("../..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == ".git" {
			return fs.SkipDir
		}
		if entry.IsDir() || !slices.Contains([]string{".go", ".js", ".yml", ".json", ".txtar"}, path.Ext(file)) {
			return nil
		}
		text, err := os.ReadFile(file)
		for _, m := range find(`\b(docs/[a-z]+\.md|SECURITY\.md)(?:#([a-z0-9-]+))?`, string(text)) {
			named++
			if page, err := os.ReadFile("../../" + m[1]); err != nil {
				t.Errorf("%s names %s: %v", file, m[0], err)
			} else if m[2] != "" && !slices.Contains(anchors(string(page)), m[2]) {
				t.Errorf("%s names %s, and that has no such heading", file, m[0])
			}
		}
		return err
	}))
	if named < 50 {
		t.Errorf("only %d names of pages were found", named)
	}
}

// All pages together stay short. What the code says by itself, and programs to copy, are not counted.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	words := 0
	for _, page := range pages(t) {
		if page == "README.md" || strings.HasPrefix(page, "docs/") && page != "docs/reference.md" {
			programs := regexp.MustCompile("(?ms)^```(js|python|java)\n.*?^```$") // to copy
			words += len(strings.Fields(programs.ReplaceAllString(read(t, page), "")))
		}
	}
	for page, most := range map[string]int{"ARCHITECTURE.md": 1000, "CHANGELOG.md": 700} {
		if n := len(strings.Fields(read(t, page))); n > most {
			t.Errorf("%s has %d words, at most %d are allowed", page, n, most)
		}
	}
	if words > 18000 {
		t.Errorf("README and docs have %d words, at most 18,000 are allowed", words)
	}
}
