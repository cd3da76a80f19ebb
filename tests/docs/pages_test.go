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

// What a page links to, what ARCHITECTURE.md names, and the pages that a text of the program or of deploy, or a comment,
// sends its reader to: all of it is there, with its heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	links := 0
	leads := func(from, to, anchor string) {
		t.Helper()
		links++
		if _, err := os.Stat("../../" + to); err != nil {
			t.Errorf("%s names %s: %v", from, to, err)
		} else if anchor != "" && !slices.Contains(anchors(read(t, to)), anchor) {
			t.Errorf("%s names %s#%s, and that has no such heading", from, to, anchor)
		}
	}
	for _, page := range pages(t) {
		for _, m := range find(`\]\(([^)\s]+)\)`, read(t, page)) {
			if file, anchor, _ := strings.Cut(m[1], "#"); file == "" {
				leads(page, page, anchor)
			} else if !strings.Contains(file, "://") {
				leads(page, path.Join(path.Dir(page), file), anchor)
			}
		}
	}
	const code = `\b(?:bus|snowflake|allocator|schema|tests|cmd)/[a-z]+(?:/[a-z]+)*(?:\.go)?`
	for _, m := range find(code, read(t, "ARCHITECTURE.md")) {
		leads("ARCHITECTURE.md", m[0], "")
	}
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
			leads(file, m[1], m[2])
		}
		return err
	}))
	if links < 170 {
		t.Errorf("only %d links were found", links)
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
	if n := strings.Count(read(t, "README.md"), "\n"); n > 180 {
		t.Errorf("the README has %d lines, at most 180 are allowed", n)
	}
	if words > 18000 {
		t.Errorf("README and docs have %d words, at most 18,000 are allowed", words)
	}
}
