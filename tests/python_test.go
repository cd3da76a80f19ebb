package tests

import (
	"os"
	"os/exec"
	"testing"
)

// The Python package index cannot be reached from where the tests run, so this
// runs with tests/python/nats.py in place of nats-py. It shows that the program
// asks, reads and prints as it should, not that nats-py does.
func TestDocsPython(t *testing.T) {
	t.Parallel()
	there(t, "python3")
	dir := t.TempDir() // a program finds the modules in its folder first
	if err := os.CopyFS(dir, os.DirFS("python")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir+"/ids.py", clientBlock(t, "python"))
	tryProgram(t, func(url string) *exec.Cmd { return against(url, dir, "python3", "ids.py") })
}
