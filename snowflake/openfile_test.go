package snowflake_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
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
	path := filepath.Join(t.TempDir(), "worker")
	f := openFile(t, path)
	wantSaved(t, f)
	if data := read(t, path); !bytes.Equal(data, make([]byte, 2*slotSize)) {
		t.Errorf("a new file has %d bytes", len(data))
	}
	wantSaved(t, openFile(t, path))
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
	whole := read(t, path)
	for size, want := range map[int][]snowflake.Saved{
		0: nil, 1: nil, 100: nil, slotSize: {raised(ceiling(1))}, slotSize + 100: {raised(ceiling(1))},
		2 * slotSize: {ceiling(1)}, 3 * slotSize: {ceiling(1)},
	} {
		path := filepath.Join(t.TempDir(), "worker")
		if err := os.WriteFile(path, append(bytes.Clone(whole), make([]byte, slotSize)...)[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		f := openFile(t, path)
		wantSaved(t, f, want...)
		if got := len(read(t, path)); got != max(size, 2*slotSize) {
			t.Errorf("%d bytes became %d", size, got)
		}
		save(t, f, ceiling(2))
		wantSaved(t, openFile(t, path), ceiling(2))
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestOpenFileFails: that there is no file to keep the state in is an error.
func TestOpenFileFails(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{
		"no folder":       filepath.Join(dir, "none", "worker"),
		"itself a folder": dir,
	} {
		if f, err := snowflake.OpenFile(path); err == nil {
			f.Close()
			t.Errorf("%s: opened", name)
		}
	}
}
