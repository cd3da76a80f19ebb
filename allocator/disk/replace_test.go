package disk_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/leafbus/leafbus/allocator/disk"
)

// What a power failure leaves is shown by TestDrillPowerFailure.
func TestReplace(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	put := func(text string, fails error) error {
		return disk.Replace(path, 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return errors.Join(err, fails)
		})
	}
	want := func(text string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("the file has %q, %v; want %q", got, err, text)
		}
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
			t.Errorf("the folder has %v, %v; want the file alone", entries, err)
		}
	}
	if err := put("old", nil); err != nil {
		t.Error(err)
	}
	want("old")
	failure := errors.New("injected")
	if err := put("half of the new", failure); !errors.Is(err, failure) {
		t.Errorf("Replace: %v, want %v", err, failure)
	}
	want("old")
	if err := put("new", nil); err != nil {
		t.Error(err)
	}
	want("new")
	if err := disk.Replace(filepath.Join(path, "file"), 0o600, func(io.Writer) error { return nil }); err == nil {
		t.Error("a file was put below a file")
	}
}

func TestMakeFolder(t *testing.T) {
	top := t.TempDir()
	for range 2 { // it may be there
		if err := disk.MakeFolder(filepath.Join(top, "a", "b", "c"), 0o750); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(filepath.Join(top, "a", "b", "c")); err != nil || !info.IsDir() {
		t.Errorf("the folder: %v, %v", info, err)
	}
	file := filepath.Join(top, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "a")} {
		if err := disk.MakeFolder(path, 0o750); err == nil {
			t.Errorf("%s became a folder", path)
		}
	}
}
