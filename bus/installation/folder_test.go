package installation

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
)

func TestNodeName(t *testing.T) {
	long := strings.Repeat("x", 65)
	for _, good := range []string{"a", "n1_A", "leaf-0", "db1.example.com", "-", "-a-", "a.-.b", long[:64], "a." + long[:62]} {
		if !IsNode(good) {
			t.Errorf("node %q is refused", good)
		}
	}
	for _, bad := range []string{"", "a b", "a\n", ".", "..", ".a", "a.", "a..b", "a/b", "a*", ">", "é", long, "a." + long[:63]} {
		if IsNode(bad) {
			t.Errorf("node %q is accepted", bad)
		}
	}
}

// openFolder opens a folder until the test or the caller closes it.
func openFolder(t *testing.T, path, node string) *Folder {
	t.Helper()
	f, err := OpenFolder(path, node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func closeFolder(t *testing.T, f *Folder) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	f := openFolder(t, path, "")
	node := f.Node
	if !IsNode(node) {
		t.Fatalf("node %q", node)
	}
	if _, err := OpenFolder(path, ""); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("a folder in use: %v", err)
	}
	closeFolder(t, f)

	f = openFolder(t, path, "")
	for _, line := range []string{"", "x"} {
		if got, err := f.read(fileInstallation); got != line || err != nil {
			t.Errorf("the file has %q, %v; want %q", got, err, line)
		}
		if err := f.write(fileInstallation, "x"); err != nil {
			t.Error(err)
		}
	}
	if f.Node != node {
		t.Errorf("node %q; want the one before, %q", f.Node, node)
	}
	closeFolder(t, f)
	for _, asked := range []string{"mine_1", ""} {
		if f = openFolder(t, path, asked); f.Node != "mine_1" {
			t.Errorf("node %q; want the one that was asked for last", f.Node)
		}
		closeFolder(t, f)
	}
	if err := os.WriteFile(f.File("node"), []byte("a b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(path, ""); err == nil {
		t.Error("a damaged node file is accepted")
	}
}

// A folder that was copied must not pass for the one that it was copied from:
// two generators would issue from one worker.
func TestFolderCopied(t *testing.T) {
	open := func(path, asked string) *Folder {
		t.Helper()
		f := openFolder(t, path, asked)
		// As a generator does that takes a worker.
		if err := f.Worker.Save(snowflake.Saved{Layout: snowflake.DefaultLayout(), Place: f.Place}); err != nil {
			t.Fatal(err)
		}
		return f
	}
	base := t.TempDir()
	path := filepath.Join(base, "first")
	f := open(path, "")
	if f.Copied {
		t.Error("a new folder is said to be a copy")
	}
	node := f.Node
	closeFolder(t, f)
	if f = open(path, ""); f.Copied || f.Node != node {
		t.Error("a folder is said to be a copy at its second start")
	}
	closeFolder(t, f)
	renamed := filepath.Join(base, "renamed")
	if err := os.Rename(path, renamed); err != nil {
		t.Fatal(err)
	}
	if f = open(renamed, ""); f.Copied || f.Node != node {
		t.Error("a folder that was renamed is said to be a copy")
	}
	closeFolder(t, f)

	clone := filepath.Join(base, "clone")
	if err := os.CopyFS(clone, os.DirFS(renamed)); err != nil {
		t.Fatal(err)
	}
	c := open(clone, "")
	if !c.Copied {
		t.Fatal("a copy is not noticed")
	}
	own := c.Node
	if own == node || !IsNode(own) {
		t.Errorf("the copy's node is %q, the original's %q", own, node)
	}
	closeFolder(t, c)
	if c = open(clone, ""); c.Node != own {
		t.Errorf("the copy's node is %q, then %q", own, c.Node)
	}
	closeFolder(t, c)
	again := filepath.Join(base, "again")
	if err := os.CopyFS(again, os.DirFS(renamed)); err != nil {
		t.Fatal(err)
	}
	if c = open(again, "mine_1"); !c.Copied || c.Node != "mine_1" {
		t.Errorf("the copy's node is %q, want the one that was asked for", c.Node)
	}
}

// A file that cannot be read is no reason to begin again, which could repeat IDs.
func TestFolderCannotBe(t *testing.T) {
	path := t.TempDir()
	worker := filepath.Join(path, "worker")
	if err := os.Mkdir(worker, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(path, ""); err == nil {
		t.Error("a folder in the place of the worker's file is accepted")
	}
	if err := errors.Join(os.Remove(worker), os.WriteFile(worker+"s", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(worker+"s", ""); err == nil || !strings.Contains(err.Error(), worker) {
		t.Errorf("a file in the place of the folder: %v", err)
	}
	openFolder(t, path, "") // nothing stays locked
}

// A data folder that ends with its pod is found, and none that lasts.
func TestTemporary(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	const mounts = `21 1 0:30 / / rw - overlay overlay rw
22 21 8:1 /var/lib/kubelet/pods/1-2/volumes/kubernetes.io~empty-dir/scratch /scratch rw,relatime - ext4 /dev/sda1 rw
23 21 8:2 / /data rw - ext4 /dev/sdb rw
`
	for folder, want := range map[string]string{
		"/scratch/leaf": "an emptyDir", "/leaf-data": "own layer", "/datax": "own layer", "/data": "", "/data/leaf": "",
	} {
		err := temporary(folder, strings.NewReader(mounts))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", folder, err, want)
		}
	}
}
