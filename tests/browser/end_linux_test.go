package browser

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// orphanEnv makes the test binary start a browser and wait to be killed.
const orphanEnv = "LEAF_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		if _, err := Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("runs")
		select {}
	}
	os.Exit(m.Run())
}

// inFolder counts the processes with a folder in their arguments, as all those of a
// browser have that of its profile.
func inFolder(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file) // a process may end meanwhile, and one that nobody has waited for has none
		if err == nil && bytes.Contains(text, []byte("--user-data-dir="+dir+"/")) {
			n++
		}
	}
	return n
}

// shortFolder is like t.TempDir, whose paths are too long for the sockets in it.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "leaf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestNothingIsLeft(t *testing.T) {
	dir := shortFolder(t)
	t.Setenv("TMPDIR", dir)
	b, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	if inFolder(t, dir) == 0 {
		t.Error("the processes of the browser are not found")
	}
	b.Close()
	if n := inFolder(t, dir); n > 0 {
		t.Errorf("%d processes still run", n)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the browser leaves %v, %v", left, err)
	}
}

func TestBrowserDoesNotOutliveItsTest(t *testing.T) {
	t.Parallel()
	dir := shortFolder(t)
	test := exec.Command(os.Args[0])
	test.Env = append(os.Environ(), orphanEnv+"=1", "TMPDIR="+dir)
	test.Stderr = os.Stderr
	out, err := test.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	running := inFolder(t, dir)
	_ = test.Process.Kill() // it ends by itself where the browser did not start
	_ = test.Wait()
	if err != nil || running == 0 {
		t.Fatalf("%d processes, %v", running, err)
	}
	eventually(t, "the end of the browser", func() bool { return inFolder(t, dir) == 0 })
}
