package mariadb

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestServerDiesWithTheTest(t *testing.T) {
	test := exec.Command(os.Args[0])
	test.Env = append(os.Environ(), orphanEnv+"="+t.TempDir())
	test.Stderr = os.Stderr
	out, err := test.StdoutPipe()
	must(t, err)
	must(t, test.Start())
	addr, err := bufio.NewReader(out).ReadString('\n')
	_ = test.Process.Kill() // it ends by itself where the server did not start
	_ = test.Wait()
	must(t, err)
	addr = strings.TrimSpace(addr)

	looks := time.NewTicker(5 * time.Millisecond)
	defer looks.Stop()
	for deadline := time.Now().Add(patience); ; <-looks.C {
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
