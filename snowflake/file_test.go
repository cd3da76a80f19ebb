package snowflake_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

const (
	slotSize = 4096
	slack    = 4000 // ms that a lost slot may cost
)

// kept is a state of which the tests change what they are about.
func kept(change func(*snowflake.Saved)) snowflake.Saved {
	s := snowflake.Saved{
		Installation: "prod", Layout: snowflake.DefaultLayout(), Place: "inode:7", Node: "a", Worker: 3,
		Incarnation: "one", ReservedUntil: 1_000_000, Ceiling: 500_000,
	}
	change(&s)
	return s
}

func ceiling(ms int64) snowflake.Saved { return kept(func(s *snowflake.Saved) { s.Ceiling = ms }) }

// raised is s as it counts when only one slot with it is left.
func raised(s snowflake.Saved) snowflake.Saved {
	s.Ceiling += slack
	return s
}

func open(t *testing.T, d snowflake.Disk) *snowflake.File {
	t.Helper()
	f, err := snowflake.NewFile(d)
	if err != nil {
		t.Fatalf("NewFile: %v", err)
	}
	return f
}

func save(t *testing.T, f *snowflake.File, states ...snowflake.Saved) {
	t.Helper()
	for _, s := range states {
		if err := f.Save(s); err != nil {
			t.Fatalf("Save(%+v): %v", s, err)
		}
		wantSaved(t, f, s)
	}
}

func wantSaved(t *testing.T, f *snowflake.File, want ...snowflake.Saved) {
	t.Helper()
	s, ok := f.Saved()
	if ok != (len(want) > 0) || ok && !slices.Contains(want, s) {
		t.Errorf("Saved = %+v, %v\nwant %+v", s, ok, want)
	}
}

// change writes into the file behind the back of who has it open.
func change(t *testing.T, d snowflake.Disk, at int, data []byte) {
	t.Helper()
	_, err := d.WriteAt(data, int64(at))
	if err := errors.Join(err, d.Sync()); err != nil {
		t.Fatal(err)
	}
}

// tape is a disk that records what is done to it: the numbers of the slots that are written, and "sync".
type tape struct {
	*snowflaketest.Disk
	steps []string
	fail  func(step string) bool // such a step is not done
	blind int64                  // the slot that cannot be read; -1: both can
}

func newTape(d *snowflaketest.Disk) *tape {
	return &tape{Disk: d, fail: func(string) bool { return false }, blind: -1}
}

func (d *tape) do(step string) error {
	d.steps = append(d.steps, step)
	if d.fail(step) {
		return snowflaketest.ErrDisk
	}
	return nil
}

func (d *tape) WriteAt(p []byte, off int64) (int, error) {
	if err := d.do(fmt.Sprint(off / slotSize)); err != nil {
		return 0, err
	}
	return d.Disk.WriteAt(p, off)
}

func (d *tape) Sync() error {
	if err := d.do("sync"); err != nil {
		return err
	}
	return d.Disk.Sync()
}

func (d *tape) ReadAt(p []byte, off int64) (int, error) {
	if off == d.blind*slotSize {
		return 0, snowflaketest.ErrDisk
	}
	return d.Disk.ReadAt(p, off)
}

// TestFileStart: the first Save after a start overwrites last what the start relied on, and both slots in any case. So
// does the first one after a failure.
func TestFileStart(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for newest := range 2 {
			d := newTape(snowflaketest.NewDisk())
			f := open(t, d)
			save(t, f, ceiling(500_000), ceiling(500_000))
			if d.steps[len(d.steps)-2] != fmt.Sprint(newest) {
				save(t, f, ceiling(500_000))
			}
			if lost {
				change(t, d, (1-newest)*slotSize, []byte("x"))
			}
			f = open(t, d)
			d.steps = nil
			save(t, f, ceiling(500_000))
			if want := []string{fmt.Sprint(1 - newest), "sync", fmt.Sprint(newest), "sync"}; !slices.Equal(d.steps, want) {
				t.Errorf("slot %d counted (the other lost: %v); Save did %v, want %v", newest, lost, d.steps, want)
			}
		}
	}
	d := newTape(snowflaketest.NewDisk())
	f := open(t, d)
	save(t, f, ceiling(500_000))
	d.steps, d.fail = nil, func(string) bool { return len(d.steps) == 3 } // the second slot
	if err := f.Save(ceiling(1)); !errors.Is(err, snowflaketest.ErrDisk) {
		t.Errorf("a Save of which a write failed: %v", err)
	}
	d.steps, d.fail = nil, func(string) bool { return false }
	save(t, f, ceiling(500_001))
	if len(d.steps) != 4 {
		t.Errorf("after a failure Save did %v", d.steps)
	}
}

// TestFileCeilingAtTheLimit: it cannot be raised beyond what an int64 holds.
func TestFileCeilingAtTheLimit(t *testing.T) {
	for _, c := range []int64{math.MaxInt64, math.MaxInt64 - slack, math.MaxInt64 - slack - 1} {
		d := snowflaketest.NewDisk()
		save(t, open(t, d), ceiling(c))
		change(t, d, 0, []byte("x"))
		wantSaved(t, open(t, d), ceiling(c+min(slack, math.MaxInt64-c)))
	}
}

// TestFileRefuses: what could not be read again is not written.
func TestFileRefuses(t *testing.T) {
	d := newTape(snowflaketest.NewDisk())
	f := open(t, d)
	save(t, f, ceiling(500_000))
	d.steps = nil
	for name, change := range map[string]func(*snowflake.Saved){
		"worker":      func(s *snowflake.Saved) { s.Worker = -2 },
		"reservation": func(s *snowflake.Saved) { s.ReservedUntil = -1 },
		"ceiling":     func(s *snowflake.Saved) { s.Ceiling = -1 },
		"layout":      func(s *snowflake.Saved) { s.Layout.WorkerBits = 0 },
		"not UTF-8":   func(s *snowflake.Saved) { s.Node = "\xff" },
		"too long":    func(s *snowflake.Saved) { s.Node = string(make([]byte, slotSize)) },
	} {
		if err := f.Save(kept(change)); err == nil {
			t.Errorf("%s: saved", name)
		}
	}
	if len(d.steps) != 0 {
		t.Errorf("%v on the disk", d.steps)
	}
	wantSaved(t, f, ceiling(500_000))
}

// TestFileUnreadable: a slot that the disk fails to read is a lost one. If there is no other, that is an error, and
// not a new file. If the slot can be read later, it is no other process's; and who does write there is still found.
func TestFileUnreadable(t *testing.T) {
	for slot := range int64(2) {
		for before := range 4 {
			d := newTape(snowflaketest.NewDisk())
			d.blind = slot
			if _, err := snowflake.NewFile(d); !errors.Is(err, snowflaketest.ErrDisk) {
				t.Errorf("a new file, of which a slot cannot be read: %v", err)
			}
			f := open(t, d.Disk)
			for range 2 + before {
				save(t, f, ceiling(500_000))
			}
			f = open(t, d)
			wantSaved(t, f, raised(ceiling(500_000)))
			d.blind = -1
			save(t, f, ceiling(600_000))
			d.blind = slot
			f = open(t, d)
			d.blind = -1
			save(t, open(t, d), ceiling(700_000))
			if err := f.Save(ceiling(800_000)); !errors.Is(err, snowflake.ErrNotAlone) {
				t.Errorf("slot %d, after %d writes: %v, want %v", slot, before, err, snowflake.ErrNotAlone)
			}
			d.Close()
			if _, err := snowflake.NewFile(d); !errors.Is(err, os.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		}
	}
}

// TestFileOfAKilledProcess: what it wrote without a sync is made durable before the other slot is overwritten.
func TestFileOfAKilledProcess(t *testing.T) {
	random := allocatortest.Seed(t)
	noSync := func(step string) bool { return step == "sync" }
	for range 100 {
		killed := newTape(snowflaketest.NewDisk())
		save(t, open(t, killed), ceiling(500_000))
		f := open(t, killed)
		killed.fail = noSync
		f.Save(ceiling(500_001))
		again := newTape(killed.Kill())
		f = open(t, again)
		wantSaved(t, f, ceiling(500_001))
		again.fail = noSync
		f.Save(ceiling(500_002))
		wantSaved(t, open(t, again.PowerFail(random)), ceiling(500_001), raised(ceiling(500_001)), ceiling(500_002))
	}
}

// TestFileNotAlone: of two that have read the same file one may write.
func TestFileNotAlone(t *testing.T) {
	for before := range 4 {
		disk := snowflaketest.NewDisk()
		for i := range before {
			save(t, open(t, disk), ceiling(int64(100+i)))
		}
		first, second := open(t, disk), open(t, disk)
		for i := range 3 {
			save(t, first, ceiling(int64(1000+i)))
			if err := second.Save(ceiling(5000)); !errors.Is(err, snowflake.ErrNotAlone) {
				t.Errorf("after %d and %d writes: Save: %v, want %v", before, i, err, snowflake.ErrNotAlone)
			}
		}
		wantSaved(t, open(t, disk), ceiling(1002))
	}
}
