package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestArchitectureNamesWhatIsThere: each file and folder of Go code that ARCHITECTURE.md names exists.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(?m)\b(?:bus|snowflake|allocator|schema|tests|cmd)/[a-z]+(?:/[a-z]+)*(?:\.go)?`).
		FindAllString(topFile(t, "ARCHITECTURE.md"), -1)
	if len(named) < 20 {
		t.Fatalf("it names only %q", named)
	}
	for _, path := range named {
		if _, err := os.Stat(filepath.Join("..", path)); err != nil {
			t.Error(err)
		}
	}
}
