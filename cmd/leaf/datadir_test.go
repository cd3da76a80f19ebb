package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNodeName(t *testing.T) {
	for _, bad := range []string{"", "a b", "a-b", "a.b", "é", strings.Repeat("x", 65)} {
		if nodeName.MatchString(bad) {
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
	if err != nil || !nodeName.MatchString(node) {
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

func TestDataDirCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openDataDir(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file in the place of the folder: %v", err)
	}
}
