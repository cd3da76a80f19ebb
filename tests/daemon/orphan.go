package daemon

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// orphanEnv makes a test binary start a server in the folder that it names.
const orphanEnv = "LEAF_TEST_ORPHAN"

// Orphan is for TestMain, and does nothing unless [CheckOrphan] runs the test
// binary: then it starts a server, prints the address, and waits to be killed.
func Orphan(start func(dir string) (addr string, err error)) {
	dir := os.Getenv(orphanEnv)
	if dir == "" {
		return
	}
	addr, err := start(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(addr)
	select {}
}

// CheckOrphan fails the test if a server outlives a test binary that is killed.
func CheckOrphan(t *testing.T) {
	t.Helper()
	test := exec.Command(os.Args[0])
	test.Env = append(os.Environ(), orphanEnv+"="+t.TempDir())
	test.Stderr = os.Stderr
	out, err := test.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	_ = test.Process.Kill() // it ends by itself where the server did not start
	_ = test.Wait()
	if err != nil {
		t.Fatal(err)
	}
	addr = strings.TrimSpace(addr)

	looks := time.NewTicker(5 * time.Millisecond)
	defer looks.Stop()
	for deadline := time.Now().Add(Patience); ; <-looks.C {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatalf("the server at %s still runs", addr)
		}
	}
}
