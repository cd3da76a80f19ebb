package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

// No server outlives a test binary that is killed.
func TestServerDiesWithTheTest(t *testing.T) {
	dir := t.TempDir()
	test := exec.Command(os.Args[0])
	test.Env = append(os.Environ(), orphanEnv+"="+dir)
	must(t, test.Start())
	var pid int
	testkit.Eventually(t, "the server runs", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	_ = test.Process.Kill() // an error shows below
	_ = test.Wait()
	testkit.Eventually(t, "the server ends", func() bool { return !exists(pid) })
}
