// Package docs compares what is written about Leafbus with what is there: pages, commands, the files of deploy, the
// description of the architecture.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/leafbus/leafbus/tests/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// module is the path of this module.
const module = "github.com/leafbus/leafbus"

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	kit.Must(t, err)
	return string(text)
}

// find returns all matches of an expression in a text, each with its groups.
func find(expression, in string) [][]string {
	return regexp.MustCompile(expression).FindAllStringSubmatch(in, -1)
}

// group is the first group of an expression in a text; empty: it is not there.
func group(expression, in string) string {
	m := regexp.MustCompile(expression).FindStringSubmatch(in)
	if m == nil {
		return ""
	}
	return m[1]
}

// pages are the names of the pages that users read.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
	docs, err := filepath.Glob("../../docs/*.md")
	kit.Must(t, err)
	for _, doc := range docs {
		found = append(found, "docs/"+filepath.Base(doc))
	}
	return found
}
