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
