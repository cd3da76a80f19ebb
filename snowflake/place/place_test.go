//go:build linux || darwin || freebsd || netbsd

package place_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/leafbus/leafbus/snowflake/place"
)

// A folder keeps its place when it is renamed. A copy has another, also one that gets the inode of a folder that is
// gone.
func TestOf(t *testing.T) {
	dir := t.TempDir()
	data, moved := filepath.Join(dir, "data"), filepath.Join(dir, "moved")
	of := func(folder string) string {
		t.Helper()
		p, err := place.Of(filepath.Join(folder, "lock"))
		if err != nil || p == "" {
			t.Fatalf("Of = %q, %v", p, err)
		}
		return p
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(data, 0o700))
	must(os.WriteFile(filepath.Join(data, "lock"), nil, 0o600))
	original := of(data)
	must(os.WriteFile(filepath.Join(data, "lock"), []byte("another holder"), 0o600))
	if again := of(data); again != original {
		t.Errorf("%s and then %s", original, again)
	}
	must(os.Rename(data, moved))
	if _, err := place.Of(filepath.Join(data, "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	if p := of(moved); p != original {
		t.Errorf("%s was %s before the folder was renamed", p, original)
	}
	for range 2 {
		must(os.CopyFS(data, os.DirFS(moved)))
		if p := of(data); p == original {
			t.Errorf("the copy is in the same place, %s", p)
		}
		must(os.RemoveAll(moved)) // its inode may be used again
		must(os.Rename(data, moved))
		original = of(moved)
	}
}
