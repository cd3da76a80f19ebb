package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/leafbus/leafbus/tests/daemon"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// peakFile makes the test binary run the command in its arguments and write
// into this file how much memory that took; see [peakMemory].
const peakFile = "LEAF_TEST_PEAK_FILE"

// leafBin is the folder of the program under test.
var leafBin string

func TestMain(m *testing.M) {
	if file := os.Getenv(peakFile); file != "" {
		os.Exit(measurePeak(file, os.Args[1:]))
	}
	os.Exit(runTests(m))
}

// runTests builds the program once, and runs the tests.
func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "leaf-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	leafBin = dir
	args := []string{"build", "-o", leafPath()}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, module+"/cmd/leaf")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building leaf: %v\n%s", err, out)
		return 1
	}
	return daemon.Main(m, mariadb.CloseShared, zookeeper.CloseShared)
}

func leafPath() string {
	name := "leaf"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(leafBin, name)
}

// measurePeak runs a command with this process's own input and output.
func measurePeak(file string, args []string) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	if runtime.GOOS != "darwin" {
		peak *= 1024 // it counts kilobytes everywhere else
	}
	if err := os.WriteFile(file, strconv.AppendInt(nil, int64(peak), 10), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}
