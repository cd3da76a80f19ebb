package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// child is `leaf serve` with an embedded NATS server, in a process of its own.
type child struct {
	*lab
	cmd   *exec.Cmd
	nats  string  // its URL
	http  string  // its URL
	ready float64 // ms from the start to the line "leaf ready"
	nc    *nats.Conn
}

// program is the leaf of -leaf, or builds one.
func (l *lab) program() string {
	if l.leaf != "" {
		return must(filepath.Abs(l.leaf))
	}
	path := filepath.Join(l.tempDir(), "leaf")
	build := exec.CommandContext(l.ctx, "go", "build", "-o", path, "github.com/leafbus/leafbus/cmd/leaf")
	build.Stderr = os.Stderr
	check(build.Run())
	return path
}

// command is a leaf that knows no settings but its arguments.
func (l *lab) command(leaf, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(l.ctx, leaf, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "LEAF_") && !strings.HasPrefix(entry, "NATS_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+dir)
	return cmd
}

// spawn starts leaf with its state in the folder dir, and waits until it is ready.
func (l *lab) spawn(leaf, dir string) *child {
	c := &child{lab: l, cmd: l.command(leaf, dir, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data-dir", dir+"/data")}
	out := must(c.cmd.StdoutPipe())
	begin := time.Now()
	check(c.cmd.Start())
	l.atEnd(c.stop)
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		check(errors.Join(errors.New("leaf serve did not become ready"), lines.Err()))
	}
	c.ready = since(begin)
	for field := range strings.FieldsSeq(lines.Text()) {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "nats":
			c.nats = value
		case "http":
			c.http = value
		}
	}
	c.nc = must(nats.Connect(c.nats))
	return c
}

// stop ends the process, once.
func (c *child) stop() error {
	if c.cmd.ProcessState != nil {
		return nil
	}
	c.nc.Close()
	return errors.Join(c.cmd.Process.Signal(syscall.SIGTERM), c.cmd.Wait())
}

// bucket is a bucket beside those of Leafbus, in the same JetStream.
func (c *child) bucket(name string) jetstream.KeyValue {
	js := must(jetstream.New(c.nc))
	return must(js.CreateOrUpdateKeyValue(c.ctx, jetstream.KeyValueConfig{Bucket: name, Storage: jetstream.FileStorage}))
}

// cpu is how many ms of processor time the process has used.
func (c *child) cpu() float64 {
	stat := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))))
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const user, system, tick = 11, 12, 10 // the fields of proc(5) from the third on; ms
	return tick * (must(strconv.ParseFloat(fields[user], 64)) + must(strconv.ParseFloat(fields[system], 64)))
}

// memory is the resident memory of the process in MB: now, and the most that it ever had.
func (c *child) memory() (now, most float64) { return resident(c.cmd.Process.Pid) }

func resident(pid int) (now, most float64) {
	for line := range strings.Lines(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))))) {
		fields := strings.Fields(line)
		if len(fields) == 3 && (fields[0] == "VmRSS:" || fields[0] == "VmHWM:") {
			kb := must(strconv.ParseFloat(fields[1], 64))
			if fields[0] == "VmRSS:" {
				now = kb / 1024
			} else {
				most = kb / 1024
			}
		}
	}
	return now, most
}

// each calls do with each number below n, with so many calls under way. A caller ends at its first error.
func each(ctx context.Context, n, callers int, do func(i int) error) error {
	failed := make([]error, callers)
	var next atomic.Int64
	var wg sync.WaitGroup
	for c := range failed {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed[c] == nil && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				failed[c] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(failed, ctx.Err())...)
}
