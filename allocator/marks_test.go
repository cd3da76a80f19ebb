package allocator_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/disk"
	"github.com/leafbus/leafbus/internal/testkit"
)

func openMarks(t *testing.T, path string) *allocator.Index {
	t.Helper()
	m, err := allocator.OpenIndex(path)
	if err != nil {
		t.Fatalf("OpenMarks: %v", err)
	}
	return m
}

func record(t *testing.T, m *allocator.Index, tag string, end int64) {
	t.Helper()
	var err error
	testkit.Eventually(t, "the disk", func() bool { // a slow machine looks like a disk that hangs
		err = m.Record(tag, end)
		return !errors.Is(err, disk.ErrHangs)
	})
	if err != nil {
		t.Fatalf("Record(%s, %d): %v", tag, end, err)
	}
}

func wantMarks(t *testing.T, m *allocator.Index, want map[string]int64) {
	t.Helper()
	for tag, end := range want {
		if got := m.End(tag); got != end {
			t.Errorf("the mark of %s is %d, want %d", tag, got, end)
		}
	}
}

func TestMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks")
	m := openMarks(t, path)
	wantMarks(t, m, map[string]int64{"order": 0})
	record(t, m, "order", 11)
	record(t, m, "order", 21)
	record(t, m, "order", 5) // lower: no change
	record(t, m, "a/b=c.d", 1<<62)
	m.Observe("order", 15)
	m.Observe("other", 99)
	m.Observe("a/b=c.d", 1)
	wantMarks(t, m, map[string]int64{"order": 21, "other": 99, "a/b=c.d": 1 << 62, "Order": 0})

	// Killed here: nothing is closed. What was only heard of is not kept.
	again := openMarks(t, path)
	wantMarks(t, again, map[string]int64{"order": 21, "other": 0, "a/b=c.d": 1 << 62})
	record(t, again, "order", 31)
	if err := again.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	record(t, again, "order", 41) // in memory only, from now on
	wantMarks(t, again, map[string]int64{"order": 41})
	wantMarks(t, openMarks(t, path), map[string]int64{"order": 31})
}

// TestMarksDamaged: lines that are damaged are passed over, the others count.
func TestMarksDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks")
	m := openMarks(t, path)
	record(t, m, "a", 10)
	record(t, m, "b", 20)
	record(t, m, "c", 30)
	record(t, m, "c", 40)
	m.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(bytes.SplitAfter(whole, []byte("\n")), func(line []byte) bool { return len(line) < 2 })
	for name, c := range map[string]struct {
		file string
		want map[string]int64
	}{
		"whole":             {string(whole), map[string]int64{"a": 10, "b": 20, "c": 40}},
		"empty":             {"", map[string]int64{"a": 0}},
		"torn":              {string(whole[:len(whole)-4]), map[string]int64{"a": 10, "b": 20, "c": 30}},
		"newline torn off":  {string(whole[:len(whole)-1]), map[string]int64{"a": 10, "b": 20, "c": 30}},
		"digit changed":     {strings.Replace(string(whole), "b 20", "b 90", 1), map[string]int64{"a": 10, "b": 0, "c": 40}},
		"tag changed":       {strings.Replace(string(whole), "b 20", "x 20", 1), map[string]int64{"a": 10, "b": 0, "x": 0, "c": 40}},
		"line of zeros":     {string(lines[0]) + strings.Repeat("\x00", 4096) + "\n" + string(lines[2]), map[string]int64{"a": 10, "c": 30}},
		"line of something": {string(lines[0]) + "hello\n\n \n" + string(lines[2]), map[string]int64{"a": 10, "c": 30}},
		"CR LF":             {strings.ReplaceAll(string(whole), "\n", "\r\n"), map[string]int64{"a": 0, "b": 0}},
		"order turned":      {string(lines[3]) + string(lines[2]) + string(lines[0]), map[string]int64{"a": 10, "c": 40}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "marks")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			m := openMarks(t, path)
			wantMarks(t, m, c.want)
			// What is added now can be read in spite of what was damaged.
			record(t, m, "new", 7)
			again := openMarks(t, path)
			wantMarks(t, again, c.want)
			wantMarks(t, again, map[string]int64{"new": 7})
		})
	}
}

// TestMarksCompaction: the file does not grow for ever, and keeps every mark.
func TestMarksCompaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks")
	m := openMarks(t, path)
	want := make(map[string]int64)
	for i := range int64(20) {
		tag := fmt.Sprintf("tag%d", i)
		want[tag] = i + 1
		record(t, m, tag, i+1)
	}
	largest := int64(0)
	for i := range int64(10_000) {
		want["order"] = i + 1
		record(t, m, "order", i+1)
		if i%500 == 0 {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			largest = max(largest, info.Size())
			wantMarks(t, openCopy(t, path), want)
		}
	}
	if largest > 5000*24 {
		t.Errorf("the file had up to %d bytes", largest)
	}
	wantMarks(t, m, want)
	m.Close()
	wantMarks(t, openMarks(t, path), want)
	wantFiles(t, filepath.Dir(path), "marks")
}

// openCopy opens a copy of the file: opening it writes it anew.
func openCopy(t *testing.T, path string) *allocator.Index {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(copied, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m := openMarks(t, copied)
	t.Cleanup(func() { m.Close() })
	return m
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("the folder has %v, want %v", names, want)
	}
}

// TestMarksUnwritable: a file that cannot be read or written is an error, not a silent
// loss of the check.
func TestMarksUnwritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link") // cannot be read, and can be replaced
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"no folder":        filepath.Join(dir, "none", "marks"),
		"not a folder":     filepath.Join(file, "marks"),
		"itself a folder":  dir,
		"links to another": link,
	} {
		if m, err := allocator.OpenIndex(path); err == nil {
			m.Close()
			t.Errorf("%s: opened", name)
		}
	}
}

// TestMarksHeard: what was heard of others' claims is in the file within seconds, and at a stop.
func TestMarksHeard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks")
	bubble(t, func(t *testing.T) {
		index := openMarks(t, path)
		a, stop := startStop(t, allocator.Config{Records: newStore(t, 10, "other"), Index: index})
		hear(a, "order", 500)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		wantMarks(t, openCopy(t, path), map[string]int64{"order": 500})
		hear(a, "other", 700)
		stop()
		if err := index.Close(); err != nil {
			t.Error(err)
		}
		wantMarks(t, openMarks(t, path), map[string]int64{"order": 500, "other": 700})
	})
}
