package place_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
)

// A folder that was deleted and restored may get the same inode. It is another
// place where the file system keeps birth times.
func TestOfFileMadeAgain(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	make := func(path string) (here, inode, born string) {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		here = placeOf(t, path)
		inode, born, _ = strings.Cut(here, " ")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return here, inode, born
	}
	first, inode, born := make(lock)
	// What a release that knew no birth times saved is recognised.
	if !(snowflake.Saved{Place: inode}).At(first) {
		t.Errorf("a file of %q is not at %q", inode, first)
	}
	for born != "" { // until the clock of the file system has moved on
		if _, _, now := make(lock + "2"); now != born {
			break
		}
	}
	if again, _, _ := make(lock); again == first {
		t.Errorf("both files are in the same place, %s", first)
	}
}
