package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus/installation"
)

// taken is an address where somebody else listens.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// advised runs leaf serve, which must fail, and returns the commands it advises.
func advised(t *testing.T, args ...string) []string {
	t.Helper()
	status, stdout, stderr := leaf(t, append([]string{"serve"}, args...)...)
	if status != exitFailed || stdout != "" || strings.Contains(stderr, "hunter2") {
		t.Fatalf("status %d: %s%s", status, stdout, stderr)
	}
	var commands []string
	for line := range strings.Lines(stderr) {
		if command, ok := strings.CutPrefix(line, "  leaf serve "); ok {
			commands = append(commands, strings.TrimSuffix(command, "\n"))
		}
	}
	if len(commands) == 0 {
		t.Logf("no advice: %s", stderr)
	}
	return commands
}

// The advice is the command that was given, but for what does not work.
func TestNATSAdvice(t *testing.T) {
	cleanEnv(t)
	t.Chdir(t.TempDir())
	at, http := taken(t), taken(t)
	for _, folder := range []string{"mine", "mine-2"} {
		if err := os.Mkdir(folder, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		args            []string
		join, elsewhere string
	}{
		"all flags": {
			[]string{"--data-dir", "keep/data", "--listen", at, "--http", "127.0.0.1:0", "--tag", "order", "--tag", "a:5",
				"--max-batch", "5000", "--user", "bob", "--password", "hunter2"},
			"-s nats://" + at + " --data-dir keep/data-2 --listen '' --http=127.0.0.1:0 --max-batch=5000 --password=... --tag=order --tag=a:5 --user=bob",
			"--listen 127.0.0.1:0 --data-dir=keep/data --http=127.0.0.1:0 --max-batch=5000 --password=... --tag=order --tag=a:5 --user=bob",
		},
		"tags in MySQL, so it could not join": {
			[]string{"--data-dir", "mine", "--listen", at, "--http", "", "--mysql", "u:hunter2@tcp(127.0.0.1:1)/d"},
			"", "--listen 127.0.0.1:0 --data-dir=mine --http='' --mysql=...",
		},
		"workers in ZooKeeper, so it could not join": {
			[]string{"--data-dir", "mine", "--listen", at, "--http", "", "--zookeeper", "127.0.0.1:1"},
			"", "--listen 127.0.0.1:0 --data-dir=mine --http='' --zookeeper=127.0.0.1:1",
		},
		"HTTP by default": {
			[]string{"--data-dir", "fresh", "--listen", at},
			"-s nats://" + at + " --data-dir fresh-2 --http '' --listen ''", "--listen 127.0.0.1:0 --http 127.0.0.1:0 --data-dir=fresh",
		},
		"HTTP is in use, too": {
			[]string{"--data-dir", "other", "--listen", at, "--http", http},
			"-s nats://" + at + " --data-dir other-2 --http '' --listen ''", "--listen 127.0.0.1:0 --http 127.0.0.1:0 --data-dir=other",
		},
		"HTTP is off": {
			[]string{"--data-dir", "mine", "--listen", at, "--http", ""},
			"-s nats://" + at + " --data-dir mine-3 --listen '' --http=''", "--listen 127.0.0.1:0 --data-dir=mine --http=''",
		},
	} {
		want := slices.DeleteFunc([]string{c.join, c.elsewhere}, func(command string) bool { return command == "" })
		if got := advised(t, c.args...); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%s: advised\n%q, want\n%q", name, got, want)
		}
	}

	// What the environment says counts for the advised command, too.
	t.Setenv("LEAF_LISTEN", at)
	t.Setenv("LEAF_HTTP", "")
	t.Setenv("LEAF_DATA_DIR", "mine")
	want := []string{"-s nats://" + at + " --data-dir mine-3 --listen ''", "--listen 127.0.0.1:0"}
	if got := advised(t); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("from the environment: advised\n%q, want\n%q", got, want)
	}
}

// Who starts leaf serve a second time in the same place meets the folder first.
func TestAdviceOnALockedFolder(t *testing.T) {
	cleanEnv(t)
	t.Chdir(t.TempDir())
	d, err := installation.OpenFolder("leaf-data", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	at := taken(t)
	want := []string{"-s nats://" + at + " --data-dir leaf-data-2 --http '' --listen ''", "--listen 127.0.0.1:0 --data-dir leaf-data-2 --http 127.0.0.1:0"}
	if got := advised(t, "--listen", at, "--http", taken(t)); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("advised\n%q, want\n%q", got, want)
	}
	// Where nobody has the address, nobody is to be joined there.
	if got := advised(t, "--listen", strings.TrimPrefix(freeAddress(t), "nats://"), "--http", ""); got != nil {
		t.Errorf("advised %q", got)
	}
	if got := advised(t, "-s", freeAddress(t), "--http", ""); got != nil {
		t.Errorf("advised %q", got)
	}
}

// The plain command's advice is what the contract says, whatever is on this machine.
func TestPlainAdvice(t *testing.T) {
	cleanEnv(t)
	t.Chdir(t.TempDir())
	for want, f := range map[string]serveFlags{
		"nats://127.0.0.1:4222 ": {},
		"nats://10.0.0.1:5000 ":  {listen: "10.0.0.1:5000"},
		"nats://127.0.0.1:5000 ": {listen: ":5000"},
		"nats://127.0.0.1:5001 ": {listen: "0.0.0.0:5001"},
		"nats://127.0.0.1:5002 ": {listen: "[::]:5002"},
	} {
		f.dataDir = "leaf-data"
		got := f.natsAdvice(newServeCmd().Flags(), false)
		if !strings.Contains(got, "leaf serve -s "+want+"--data-dir leaf-data-2 --http ''") {
			t.Errorf("advice %q, want %q in it", got, want)
		}
	}
}

// A configuration has addresses that no generator can be joined at.
func TestAdviceOnOtherAddresses(t *testing.T) {
	cleanEnv(t)
	folder := t.TempDir()
	config := filepath.Join(folder, "nats.conf")
	if err := os.WriteFile(config, []byte("listen: \"127.0.0.1:-1\", http: \""+taken(t)+"\""), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := leaf(t, "serve", "--nats-config", config, "--data-dir", filepath.Join(folder, "data"), "--http", "")
	if status != exitFailed || !strings.Contains(stderr, "change the address in "+config) || strings.Contains(stderr, "HOST:PORT") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// The advice is the command that was given, but for the address, what the environment has, and what is secret.
func TestHTTPAdvice(t *testing.T) {
	t.Setenv("LEAF_NODE", "from_env")
	cmd := newServeCmd()
	cmd.Flags().String("config", "", "")
	args := []string{
		"--tag", "order", "--tag", "a b:5", "--http", "127.0.0.1:8080", "--data-dir", "it's", "--http-token", "hunter2",
		"-s", "nats://alice:hunter2@h:4222", "--mysql", "u:hunter2@tcp(h)/d",
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if err := applyEnvironment(cmd.Flags()); err != nil {
		t.Fatal(err)
	}
	advice := httpAdvice(cmd.Flags())
	for _, http := range []string{"127.0.0.1:0", "''"} {
		want := "  leaf serve --http " + http + ` --data-dir='it'\''s' --http-token=... --mysql=... --server=... --tag=order --tag='a b:5'` + "\n"
		if !strings.Contains(advice+"\n", want) {
			t.Errorf("the advice is %s, want %s", advice, want)
		}
	}
	if strings.Contains(advice, "hunter2") {
		t.Errorf("the advice shows a secret: %s", advice)
	}
}
