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
	ids := clientBlock(t, "python")
	writeFile(t, dir+"/ids.py", ids)
	writeFile(t, dir+"/order.py", printsOrder(t, ids, "headers = ", 1, "    print(%s, file=__import__('sys').stderr)"))
	tryPrograms(t, func(url, name string) *exec.Cmd { return against(url, dir, "python3", name+".py") })
}
