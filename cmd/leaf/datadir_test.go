package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
)

func TestNodeName(t *testing.T) {
	long := strings.Repeat("x", 65)
	for _, good := range []string{"a", "n1_A", "leaf-0", "db1.example.com", "-", "-a-", "a.-.b", long[:64], "a." + long[:62]} {
		if !isNode(good) {
			t.Errorf("node %q is refused", good)
		}
	}
	for _, bad := range []string{"", "a b", "a\n", ".", "..", ".a", "a.", "a..b", "a/b", "a*", ">", "é", long, "a." + long[:63]} {
		if isNode(bad) {
			t.Errorf("node %q is accepted", bad)
		}
	}
}

func TestDataDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	d, err := openDataDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if !d.isNew() {
		t.Error("an empty folder is not new")
	}
	node, err := d.node("", false)
	if err != nil || !isNode(node) {
		t.Fatalf("node %q, %v", node, err)
	}
	if _, err := openDataDir(path); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("a folder in use: %v", err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}

	d, err = openDataDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if !d.isNew() {
		t.Error("a folder whose generator failed before it had a store is not new")
	}
	if err := d.write("installation", "x"); err != nil || d.isNew() {
		t.Errorf("a folder with an installation is new, %v", err)
	}
	if again, err := d.node("", false); err != nil || again != node {
		t.Errorf("node %q, %v; want the one before, %q", again, err, node)
	}
	if named, err := d.node("mine_1", false); err != nil || named != "mine_1" {
		t.Errorf("node %q, %v; want the one that was asked for", named, err)
	}
	if kept, err := d.node("", false); err != nil || kept != "mine_1" {
		t.Errorf("node %q, %v; want the one that was asked for last", kept, err)
	}
	if err := os.WriteFile(d.file("node"), []byte("a b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.node("", false); err == nil {
		t.Error("a damaged node file is accepted")
	}
}

// A folder that was copied must not pass for the one that it was copied from:
// two generators would issue from one worker.
func TestDataDirCopied(t *testing.T) {
	open := func(path string) (d *dataDir, copied bool) {
		t.Helper()
		d, err := openDataDir(path)
		if err != nil {
			t.Fatal(err)
		}
		file, place, copied, err := d.worker()
		if err != nil {
			t.Fatal(err)
		}
		// As a generator does that takes a worker.
		if err := file.Save(snowflake.Saved{Layout: snowflake.DefaultLayout(), Place: place}); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		return d, copied
	}
	name := func(d *dataDir, asked string, copied bool) string {
		t.Helper()
		node, err := d.node(asked, copied)
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	end := func(d *dataDir) {
		t.Helper()
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}

	base := t.TempDir()
	path := filepath.Join(base, "first")
	d, copied := open(path)
	if copied {
		t.Error("a new folder is said to be a copy")
	}
	node := name(d, "", false)
	end(d)
	if d, copied = open(path); copied || name(d, "", copied) != node {
		t.Error("a folder is said to be a copy at its second start")
	}
	end(d)
	renamed := filepath.Join(base, "renamed")
	if err := os.Rename(path, renamed); err != nil {
		t.Fatal(err)
	}
	if d, copied = open(renamed); copied {
		t.Error("a folder that was renamed is said to be a copy")
	}
	defer end(d)

	clone := filepath.Join(base, "clone")
	if err := os.CopyFS(clone, os.DirFS(renamed)); err != nil {
		t.Fatal(err)
	}
	c, copied := open(clone)
	defer end(c)
	if !copied {
		t.Fatal("a copy is not noticed")
	}
	own := name(c, "", true)
	if own == node || !isNode(own) {
		t.Errorf("the copy's node is %q, the original's %q", own, node)
	}
	if again := name(c, "", false); again != own {
		t.Errorf("the copy's node is %q, then %q", own, again)
	}
	if asked := name(c, "mine_1", true); asked != "mine_1" {
		t.Errorf("the copy's node is %q, want the one that was asked for", asked)
	}
}

// What cannot be read is no reason to start anew, which could repeat IDs.
func TestDataDirWorkerUnreadable(t *testing.T) {
	d, err := openDataDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := os.Mkdir(d.file("worker"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := d.worker(); err == nil {
		t.Error("a folder in the place of the worker's file is accepted")
	}
}

func TestDataDirCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openDataDir(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file in the place of the folder: %v", err)
	}
}
