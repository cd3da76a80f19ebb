//go:build unix

package allocator_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
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

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestMarksFullDisk: a line that was written in part does not spoil the next, and the lines
// that are missing come with it.
func TestMarksFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks")
	m := openMarks(t, path)
	defer m.Close()
	record(t, m, "a", 10)
	undo := fullDisk(t, size(t, path)+5)
	first, second := m.Record("b", 20), m.Record("c", 30)
	undo()
	if first == nil || second == nil {
		t.Errorf("errors %v and %v on a full disk", first, second)
	}
	wantMarks(t, m, map[string]int64{"a": 10, "b": 20, "c": 30})
	record(t, m, "d", 40)
	record(t, m, "e", 50)
	wantMarks(t, openCopy(t, path), map[string]int64{"a": 10, "b": 20, "c": 30, "d": 40, "e": 50})
}
