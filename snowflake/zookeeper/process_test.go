package zookeeper

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/daemon"
)

// processEnv makes the test binary a generator, whose setting it has.
const processEnv = "LEAF_TEST_GENERATOR"

// setting is that of a generator with a process of its own.
type setting struct {
	Hosts, Name, Node string
	Folder            string // of its files
	Ahead             int64  // ms by which its clock is ahead of the machine's
	First, Last       int64  // worker
	Reserve           time.Duration
}

const (
	idsFile = "ids" // a line for each range, and one that is empty where there was none to have
	perTake = 20_000
)

// generate issues as fast as it can until it is told to stop.
func generate(text string) error {
	var s setting
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	file, err := snowflake.OpenFile(filepath.Join(s.Folder, "worker"))
	if err != nil {
		return err
	}
	ids, err := os.Create(filepath.Join(s.Folder, idsFile))
	if err != nil {
		return err
	}
	r, err := newRegistry(Config{Hosts: s.Hosts, Name: s.Name, Node: s.Node, Log: slog.Default()})
	if err != nil {
		return err
	}
	system := snowflake.SystemClock()
	g := snowflake.New(snowflake.Config{
		Layout: snowflake.DefaultLayout(), Registry: &attended{Registry: r}, File: file, Place: "inode:1", Node: s.Node,
		FirstWorker: s.First, LastWorker: s.Last, Reserve: s.Reserve, Grace: s.Reserve,
		Clock:  func() snowflake.Reading { r := system(); r.Wall += s.Ahead; return r },
		Notify: func(e snowflake.Event) { slog.Info("event", "event", fmt.Sprintf("%T%+v", e, e)) },
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error)
	go func() { ended <- g.Run(ctx, "test") }()
	for again := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; {
		ranges, err := g.Take(ctx, perTake)
		var lines []byte
		for _, r := range ranges {
			lines = fmt.Appendln(lines, r.First, r.Last)
		}
		if err != nil {
			lines = []byte("\n")
		}
		// Nothing is kept back: the process may be killed.
		if _, err := ids.Write(lines); err != nil {
			return err
		}
		if err != nil {
			<-again.C
		}
	}
	err = errors.Join(<-ended, g.Close(), file.Close(), ids.Close())
	r.Close()
	return err
}

// process is a generator with a process of its own.
type process struct {
	*daemon.Process
	tb      testing.TB
	setting setting
}

func startProcess(tb testing.TB, s setting) *process {
	tb.Helper()
	s.Folder = tb.TempDir()
	text, err := json.Marshal(s)
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processEnv+"="+string(text), "GORACE=atexit_sleep_ms=0")
	log := filepath.Join(s.Folder, "log")
	p, err := daemon.Launch(daemon.Program{Name: s.Node, Command: cmd, Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.Close()
		if text, _ := os.ReadFile(log); tb.Failed() {
			tb.Logf("%+v wrote:\n%s", s, text)
		}
	})
	return &process{Process: p, tb: tb, setting: s}
}

// issued is what a process issued.
type issued struct {
	ranges []snowflake.Range
	none   int // how often there were none to have
}

// issued reads what the process has issued so far.
func (p *process) issued() (found issued) {
	p.tb.Helper()
	file, err := os.Open(filepath.Join(p.setting.Folder, idsFile))
	if errors.Is(err, os.ErrNotExist) {
		return found // it starts
	}
	if err != nil {
		p.tb.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		if err != nil { // a line of which the end is not there yet
			return found
		}
		var r snowflake.Range
		if line == "\n" {
			found.none++
		} else if _, err := fmt.Sscan(line, &r.First, &r.Last); err != nil {
			p.tb.Fatalf("%q: %v", line, err)
		} else {
			found.ranges = append(found.ranges, r)
		}
	}
}

// of returns those of the workers.
func (i issued) of(workers ...int64) (times times) {
	layout := snowflake.DefaultLayout()
	for _, r := range i.ranges {
		if p, err := layout.Decode(r.First, layout.End()); err == nil && slices.Contains(workers, p.Worker) {
			times.first, times.last = cmp.Or(min(times.first, p.UnixMS), p.UnixMS), max(times.last, p.UnixMS)
			times.ids += r.Len()
		}
	}
	return times
}

// times are those of IDs, and how many there are.
type times struct{ first, last, ids int64 }

// await waits until there are so many IDs more of the workers.
func (p *process) await(more int64, workers ...int64) {
	p.tb.Helper()
	until := p.issued().of(workers...).ids + more
	testkit.Eventually(p.tb, fmt.Sprint(p.setting.Node, " issues IDs of ", workers), func() bool { return p.issued().of(workers...).ids >= until })
}

// end stops the process.
func (p *process) end() {
	p.tb.Helper()
	if err := p.Stop(); err != nil {
		p.tb.Error(err)
	}
}
