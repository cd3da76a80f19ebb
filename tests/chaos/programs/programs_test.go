package programs

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// start runs a program until the test ends, and waits until the NATS server in it, at addr, accepts connections.
func start(t *testing.T, addr, program string, args ...string) (*kit.Process, *Control, *nats.Conn) {
	t.Helper()
	dir := t.TempDir()
	control, err := NewControl(filepath.Join(dir, "control"))
	kit.Must(t, err)
	t.Cleanup(func() { kit.Must(t, control.Close()) })
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, control.Env()}
	process := kit.Start(t, cmd)
	testkit.Eventually(t, "a server that accepts connections", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return process, control, kit.Connect(t, "nats://"+addr)
}

// isAhead reports that a time is three hours ahead, give or take an hour for the test.
func isAhead(at time.Time) bool { return (time.Until(at) - 3*time.Hour).Abs() < time.Hour }

func TestLeaf(t *testing.T) {
	leaf, err := Build(t.Context(), t.TempDir(),
		Edit{"cmd/leaf/main.go", "func main() { ", "func main() { println(\"edited\"); "})
	kit.Must(t, err)
	addr := testkit.FreeAddress(t)
	process, control, nc := start(t, addr, leaf, "serve", "--http", "", "--listen", addr)
	client := admin.NewClient(nc)
	create := func(ctx context.Context, tag string) error {
		_, err := client.CreateTag(ctx, admin.TagSpec{Tag: tag})
		return err
	}
	testkit.Eventually(t, "a new tag", func() bool { return create(t.Context(), "first") == nil })
	if log := process.Stderr(); !strings.HasPrefix(log, "edited\n") || strings.Contains(log, "LEAF_CHAOS") {
		t.Errorf("leaf wrote %q; want the line of the edit, and no warning of an unknown variable", log)
	}

	control.Disk(Slow(time.Hour))
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := create(soon, "slow"); err == nil {
		t.Error("a tag was created within a second on a disk that takes an hour for each write")
	}
	control.Disk(Fine)
	testkit.Eventually(t, "a new tag", func() bool { return create(t.Context(), "second") == nil })

	control.Clock(3 * time.Hour)
	testkit.Eventually(t, "the generator's clock is three hours ahead", func() bool {
		states, err := client.States(t.Context())
		return err == nil && len(states) == 1 && isAhead(time.UnixMilli(states[0].Clock.UnixMS))
	})

	// The file of the worker is leaf's own, and JetStream's are nats-server's.
	control.Disk(Full)
	testkit.Eventually(t, "a full disk is reported for both", func() bool {
		states := kit.States(nc)
		return len(states) == 1 && strings.Contains(states[0].Reasons["nats"], "no room") &&
			strings.Contains(states[0].Reasons["worker"], "no space left")
	})
}

func TestNATS(t *testing.T) {
	server, err := BuildNATS(t.Context(), t.TempDir())
	kit.Must(t, err)
	addr := testkit.FreeAddress(t)
	host, port, err := net.SplitHostPort(addr)
	kit.Must(t, err)
	_, control, nc := start(t, addr, server, "--addr", host, "--port", port, "--jetstream", "--store_dir", "data")
	js, err := jetstream.New(nc)
	kit.Must(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"s"}})
	kit.Must(t, err)

	control.Clock(3 * time.Hour)
	ack, err := js.Publish(t.Context(), "s", nil)
	kit.Must(t, err)
	msg, err := stream.GetMsg(t.Context(), ack.Sequence)
	kit.Must(t, err)
	if !isAhead(msg.Time) {
		t.Errorf("the message has the time %v, want one three hours ahead", msg.Time)
	}
	control.Disk(Full)
	soon, cancel := context.WithTimeout(t.Context(), time.Second) // nats-server does not answer then
	defer cancel()
	if _, err := js.Publish(soon, "s", nil); err == nil {
		t.Error("a message was stored on a full disk")
	}
}

func TestEditsThatDoNotFit(t *testing.T) {
	for name, before := range map[string]string{"missing": "no such text", "twice": "main"} {
		_, err := Build(t.Context(), t.TempDir(), Edit{"cmd/leaf/main.go", before, ""})
		if err == nil || !strings.Contains(err.Error(), "cmd/leaf/main.go has ") ||
			!strings.Contains(err.Error(), "times, not once") {
			t.Errorf("%s: error %v, want one that names the file and the text", name, err)
		}
	}
	root := t.TempDir()
	kit.Must(t, os.MkdirAll(filepath.Join(root, "src/time"), 0o700))
	kit.Must(t, os.WriteFile(filepath.Join(root, "src/time/time.go"), []byte("package time\n"), 0o600))
	err := addStandard(map[string]string{}, goEnv{GOROOT: root, GOVERSION: "go9.9", GOARCH: "amd64"})
	if err == nil || !strings.Contains(err.Error(), "do not fit go9.9") || !strings.Contains(err.Error(), "time.go") {
		t.Errorf("error %v for a Go of another version, want one that names it and the file", err)
	}
}
