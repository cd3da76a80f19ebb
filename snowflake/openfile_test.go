//go:build unix

package snowflake_test

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
)

func openFile(t *testing.T, path string) *snowflake.File {
	t.Helper()
	f, err := snowflake.OpenFile(path)
	if err != nil {
		t.Fatalf("OpenFile: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// fullDisk lets no file of this process grow beyond size until it is undone.
func fullDisk(t *testing.T, size int64) (undo func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	set := func(limit syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	set(syscall.Rlimit{Cur: uint64(size), Max: old.Max})
	return func() { set(old) }
}

// TestFileFullDisk: a file that exists can be saved; one that has no room is an error, and is completed later.
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
