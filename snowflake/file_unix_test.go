//go:build unix

package snowflake_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
)

// fullDisk lets no file of this process grow beyond size until it is undone.
func fullDisk(t *testing.T, size int64) (undo func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limit := old
	limit.Cur = uint64(size)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFileFullDisk: a file that exists can be saved; one that has no room is an
// error, and is completed later.
func TestFileFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker")
	undo := fullDisk(t, slotSize+100)
	_, err := snowflake.OpenFile(path)
	undo()
	if !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("OpenFile on a full disk: %v", err)
	}
	f := openFile(t, path)
	wantSaved(t, f)
	undo = fullDisk(t, 2*slotSize)
	defer undo()
	save(t, f, ceiling(500_000), ceiling(501_000), ceiling(1), ceiling(2))
	wantSaved(t, openFile(t, path), ceiling(2))
}

// TestOpenFileMode: others do not read it.
func TestOpenFileMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker")
	openFile(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode(); mode&^0o640 != 0 || mode&0o600 != 0o600 {
		t.Errorf("mode %v", mode)
	}
}

func place(t *testing.T, lock string) string {
	t.Helper()
	p, err := snowflake.Place(lock)
	if err != nil || p == "" {
		t.Fatalf("Place = %q, %v", p, err)
	}
	return p
}

// TestPlace: a folder keeps its place when it is renamed, and a copy has another.
func TestPlace(t *testing.T) {
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
	original := place(t, filepath.Join(data, "lock"))
	write("another holder")
	if again := place(t, filepath.Join(data, "lock")); again != original {
		t.Errorf("%s and then %s", original, again)
	}
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	if _, err := snowflake.Place(filepath.Join(data, "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	if p := place(t, filepath.Join(moved, "lock")); p != original {
		t.Errorf("%s was %s before the folder was renamed", p, original)
	}
	if err := os.CopyFS(data, os.DirFS(moved)); err != nil {
		t.Fatal(err)
	}
	if p := place(t, filepath.Join(data, "lock")); p == original {
		t.Errorf("the copy is in the same place, %s", p)
	}
}
