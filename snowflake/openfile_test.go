//go:build unix

package snowflake_test

import (
	"bytes"
	"errors"
	"os"
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

// TestOpenFile: on a real disk, whatever size the file has.
func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "worker")
	f := openFile(t, path)
	wantSaved(t, f)
	if info, err := os.Stat(path); err != nil || info.Size() != 2*slotSize || info.Mode()&^0o640 != 0 {
		t.Errorf("a new file is %+v, %v", info, err)
	}
	save(t, f, ceiling(500_000), ceiling(501_000))
	again := openFile(t, path) // killed: nothing was closed
	wantSaved(t, again, ceiling(501_000))
	save(t, again, ceiling(1))
	if err := again.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := again.Save(ceiling(2)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Save after Close: %v", err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int][]snowflake.Saved{
		0: nil, 1: nil, slotSize: {raised(ceiling(1))}, slotSize + 100: {raised(ceiling(1))},
		2 * slotSize: {ceiling(1)}, 3 * slotSize: {ceiling(1)},
	} {
		path := filepath.Join(t.TempDir(), "worker")
		if err := os.WriteFile(path, append(bytes.Clone(whole), make([]byte, slotSize)...)[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		f := openFile(t, path)
		wantSaved(t, f, want...)
		if info, err := os.Stat(path); err != nil || info.Size() != int64(max(size, 2*slotSize)) {
			t.Errorf("%d bytes became %+v, %v", size, info, err)
		}
		save(t, f, ceiling(2))
		wantSaved(t, openFile(t, path), ceiling(2))
	}
	for _, path := range []string{filepath.Join(dir, "none", "worker"), dir} {
		if _, err := snowflake.OpenFile(path); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
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
