package allocator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator/disk"
)

// hangingFile is a file whose writes hang while the gate is closed.
type hangingFile struct {
	writeSyncer
	mu   sync.Mutex
	gate chan struct{}
}

func (f *hangingFile) shut() (open func()) {
	gate := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (f *hangingFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	gate := f.gate
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return f.writeSyncer.Write(p)
}

// openHanging opens marks whose file can be made to hang.
func openHanging(t *testing.T) (*Index, *hangingFile) {
	t.Helper()
	m, err := OpenIndex(filepath.Join(t.TempDir(), "marks"))
	if err != nil {
		t.Fatal(err)
	}
	f := &hangingFile{writeSyncer: m.file.file}
	m.file.file = f
	return m, f
}

// counting are records in which every tag has as many IDs as are asked for.
type counting struct {
	Records
	mu   sync.Mutex
	next map[string]int64
}

// newCounting returns an allocator of which every tag has IDs from first on.
func newCounting(first int64, cfg Config) *Allocator {
	s := &counting{next: make(map[string]int64)}
	cfg.Records = s
	a := New(cfg)
	a.reserveIDs = func(_ context.Context, tag string, want plan, _ int64) (Grant, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := max(want.n, 10)
		first := max(s.next[tag], first)
		s.next[tag] = first + n
		return Grant{Range: Range{First: first, Last: first + n - 1}, Step: 10}, nil
	}
	return a
}

func (s *counting) Watch(ctx context.Context, _ func(Update)) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestDiskHangs: IDs of hundreds of tags go on while the file of the marks hangs, a
// request waits for it once, it is logged once, and Run and Close return.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, f := openHanging(t)
		var log bytes.Buffer
		a := newCounting(1, Config{Index: m, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { a.Run(ctx) })
		takeAll := func(most time.Duration) {
			t.Helper()
			begin := time.Now()
			var callers sync.WaitGroup
			for i := range 300 { // more than there are places for refills
				callers.Go(func() {
					if _, err := a.Take(ctx, fmt.Sprint("tag", i), 25); err != nil {
						t.Errorf("Take: %v", err)
					}
				})
			}
			callers.Wait()
			if took := time.Since(begin); took > most {
				t.Errorf("it took %v, want at most %v", took, most)
			}
		}
		takeAll(0)
		open := f.shut()
		takeAll(markWait)
		takeAll(0)
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("the log has %d warnings:\n%s", n, log.String())
		}

		// It comes back: with the next mark all are written.
		open()
		synctest.Wait() // until the write that hung has returned
		takeAll(0)
		synctest.Wait()
		if !strings.Contains(log.String(), "written again") {
			t.Errorf("the log is\n%s", log.String())
		}
		kept, err := readLines(m.file.path)
		if err != nil || len(kept) != 300 || kept["tag7"] != m.End("tag7") {
			t.Errorf("the file has %d marks, %d of tag7; want 300, %d", len(kept), kept["tag7"], m.End("tag7"))
		}

		open = f.shut()
		defer open() // else the one goroutine stays
		takeAll(markWait)
		begin := time.Now()
		cancel()
		run.Wait()
		if err := m.Close(); !errors.Is(err, disk.ErrHangs) {
			t.Errorf("Close: %v, want %v", err, disk.ErrHangs)
		}
		if took := time.Since(begin); took > closeWait {
			t.Errorf("the end took %v", took)
		}
	})
}

// TestFullDiskIsMadeUpFor: marks that could not be written are with the next one.
func TestFullDiskIsMadeUpFor(t *testing.T) {
	synctest.Test(t, testFullDisk) // so that a slow machine is no disk that hangs
}

func testFullDisk(t *testing.T) {
	m, f := openHanging(t)
	full := errors.New("full")
	m.file.file = failing{f, full}
	for i := range 100 {
		if err := m.Record(fmt.Sprint("tag", i), 7); !errors.Is(err, full) {
			t.Fatalf("Record on a full disk: %v", err)
		}
	}
	m.file.file = f
	if err := m.Record("order", 8); err != nil {
		t.Error(err)
	}
	kept, err := readLines(m.file.path)
	if err != nil || len(kept) != 101 || kept["tag0"] != 7 || kept["order"] != 8 {
		t.Errorf("the file has %d marks, %v", len(kept), err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

type failing struct {
	writeSyncer
	err error
}

func (f failing) Write([]byte) (int, error) { return 0, f.err }
