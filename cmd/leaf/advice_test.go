package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// taken is an address where another program listens.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// advised runs leaf serve, which must fail, and returns the commands that it advises.
func advised(t *testing.T, args ...string) (commands []string) {
	t.Helper()
	status, stdout, stderr := leaf(t, append([]string{"serve"}, args...)...)
	if status != exitFailed || stdout != "" || strings.Contains(stderr, "hunter2") {
		t.Fatalf("status %d: %s%s", status, stdout, stderr)
	}
	for line := range strings.Lines(stderr) {
		if command, ok := strings.CutPrefix(line, "  leaf serve "); ok {
			commands = append(commands, strings.TrimSuffix(command, "\n"))
		}
	}
	return commands
}

// Where an address is in use, the advice is the command that would work. It shows no secret.
func TestAdvice(t *testing.T) {
	cleanEnv(t)
	t.Chdir(t.TempDir())
	at, http := taken(t), taken(t)
	if err := os.Mkdir("mine", 0o750); err != nil {
		t.Fatal(err)
	}
	const join, elsewhere = "-s nats://", "--listen 127.0.0.1:0 "
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"as contract.md has it": {[]string{"--data-dir", "fresh", "--listen", at}, []string{
			join + at + " --data-dir fresh-2 --http '' --listen ''", elsewhere + "--http 127.0.0.1:0 --data-dir=fresh"}},
		"HTTP is in use, too": {[]string{"--data-dir", "other", "--listen", at, "--http", http}, []string{
			join + at + " --data-dir other-2 --http '' --listen ''", elsewhere + "--http 127.0.0.1:0 --data-dir=other"}},
		"HTTP alone is in use": {[]string{"--data-dir", "third", "--listen", "127.0.0.1:0", "--http", http}, []string{
			"--http 127.0.0.1:0 --data-dir=third --listen=127.0.0.1:0", "--http '' --data-dir=third --listen=127.0.0.1:0"}},
		"tags in MySQL, so it could not join": {
			[]string{"--data-dir", "mine", "--listen", at, "--http", "", "--mysql", "u:hunter2@tcp(127.0.0.1:1)/d"},
			[]string{elsewhere + "--data-dir=mine --http='' --mysql=..."}},
	} {
		if got := advised(t, c.args...); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
			t.Errorf("%s: advised\n%q, want\n%q", name, got, c.want)
		}
	}
}

// A configuration of NATS has addresses that no generator can be joined at.
func TestAdviceOnOtherAddresses(t *testing.T) {
	cleanEnv(t)
	folder := t.TempDir()
	config := filepath.Join(folder, "nats.conf")
	if err := os.WriteFile(config, []byte("listen: \"127.0.0.1:-1\", http: \""+taken(t)+"\""), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := leaf(t, "serve", "--nats-config", config, "--data-dir", filepath.Join(folder, "data"), "--http", "")
	if status != exitFailed || !strings.Contains(stderr, "change the address in "+config) {
		t.Errorf("status %d: %s", status, stderr)
	}
}
