//go:build unix

package place_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/leafbus/leafbus/snowflake/place"
)

func placeOf(t *testing.T, lock string) string {
	t.Helper()
	p, err := place.Of(lock)
	if err != nil || p == "" {
		t.Fatalf("Of = %q, %v", p, err)
	}
	return p
}

// A folder keeps its place when it is renamed, and a copy has another.
func TestOf(t *testing.T) {
	dir := t.TempDir()
	data, moved := filepath.Join(dir, "data"), filepath.Join(dir, "moved")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(data, "lock"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	original := placeOf(t, filepath.Join(data, "lock"))
	write("another holder")
	if again := placeOf(t, filepath.Join(data, "lock")); again != original {
		t.Errorf("%s and then %s", original, again)
	}
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	if _, err := place.Of(filepath.Join(data, "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	if p := placeOf(t, filepath.Join(moved, "lock")); p != original {
		t.Errorf("%s was %s before the folder was renamed", p, original)
	}
	if err := os.CopyFS(data, os.DirFS(moved)); err != nil {
		t.Fatal(err)
	}
	if p := placeOf(t, filepath.Join(data, "lock")); p == original {
		t.Errorf("the copy is in the same place, %s", p)
	}
}
