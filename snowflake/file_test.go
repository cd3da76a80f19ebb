package snowflake_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestFile: what was saved is there for the next start, also after the power
// failed; and which slots that took.
func TestFile(t *testing.T) {
	one, both := "older sync", "older sync newer sync"
	for name, c := range map[string]struct {
		next  snowflake.Saved
		steps string
	}{
		"the same":             {ceiling(500_000), one},
		"ceiling":              {ceiling(500_001), one},
		"ceiling by slack":     {ceiling(504_000), one},
		"ceiling by more":      {ceiling(504_001), both},
		"ceiling to the limit": {ceiling(math.MaxInt64), both},
		"ceiling lower":        {ceiling(499_999), both},
		"ceiling to zero":      {ceiling(0), both},
		"reservation":          {kept(func(s *snowflake.Saved) { s.ReservedUntil = math.MaxInt64 }), one},
		"reservation lower":    {kept(func(s *snowflake.Saved) { s.ReservedUntil-- }), both},
		"installation":         {kept(func(s *snowflake.Saved) { s.Installation = "test" }), both},
		"layout":               {kept(func(s *snowflake.Saved) { s.Layout.Epoch++ }), both},
		"place":                {kept(func(s *snowflake.Saved) { s.Place = "" }), both},
		"node":                 {kept(func(s *snowflake.Saved) { s.Node = "\x00<ä>" }), both},
		"worker":               {kept(func(s *snowflake.Saved) { s.Worker = -1 }), both},
		"incarnation":          {kept(func(s *snowflake.Saved) { s.Incarnation = "two" }), both},
		"pending":              {kept(func(s *snowflake.Saved) { s.Pending = "two" }), both},
	} {
		t.Run(name, func(t *testing.T) {
			d := &tape{Disk: snowflaketest.NewDisk()}
			f := open(t, d)
			wantSaved(t, f)
			save(t, f, ceiling(500_000), ceiling(500_000))
			newer := d.steps[len(d.steps)-2].slot()
			d.steps = nil
			save(t, f, c.next)
			var steps string
			for _, s := range d.steps {
				switch slot := s.slot(); slot {
				case "sync":
					steps += " sync"
				case newer:
					steps += " newer"
				default:
					steps += " older"
				}
			}
			if steps != " "+c.steps {
				t.Errorf("Save did%s; want %s", steps, c.steps)
			}
			random := rand.New(rand.NewPCG(1, 2))
			wantSaved(t, open(t, d.Copy()), c.next)
			again := d.Kill()
			wantSaved(t, open(t, again), c.next)
			again = again.PowerFail(random)
			f = open(t, again)
			wantSaved(t, f, c.next)
			save(t, f, ceiling(1))
			wantSaved(t, open(t, again.PowerFail(random)), ceiling(1))
		})
	}
}

// TestFileStart: the first Save after a start overwrites last what the start
// relied on, and both slots in any case.
func TestFileStart(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for newest := range 2 {
			d := &tape{Disk: snowflaketest.NewDisk()}
			f := open(t, d)
			save(t, f, ceiling(500_000), ceiling(500_000))
			if d.steps[len(d.steps)-2].slot() != fmt.Sprint(newest) {
				save(t, f, ceiling(500_000))
			}
			if lost {
				change(t, d, (1-newest)*slotSize, []byte("x"))
			}
			f = open(t, d)
			d.steps = nil
			save(t, f, ceiling(500_000))
			if len(d.steps) != 4 || d.steps[0].slot() == fmt.Sprint(newest) || d.steps[2].slot() != fmt.Sprint(newest) {
				t.Errorf("slot %d counted (the other lost: %v); %d steps, slot %s first", newest, lost, len(d.steps), d.steps[0].slot())
			}
		}
	}
}

// TestFileCeilingAtTheLimit: it cannot be raised beyond what an int64 holds.
func TestFileCeilingAtTheLimit(t *testing.T) {
	for _, c := range []int64{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - slack, math.MaxInt64 - slack - 1} {
		d := snowflaketest.NewDisk()
		save(t, open(t, d), ceiling(c))
		change(t, d, 0, []byte("x"))
		wantSaved(t, open(t, d), ceiling(max(c, c+min(slack, math.MaxInt64-c))))
	}
}

// TestFileRefuses: what could not be read again is not written.
func TestFileRefuses(t *testing.T) {
	d := &tape{Disk: snowflaketest.NewDisk()}
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
		"nothing":     func(s *snowflake.Saved) { *s = snowflake.Saved{} },
	} {
		if err := f.Save(kept(change)); err == nil {
			t.Errorf("%s: saved", name)
		}
	}
	if len(d.steps) != 0 {
		t.Errorf("%d steps on the disk", len(d.steps))
	}
	wantSaved(t, f, ceiling(500_000))
	wantSaved(t, open(t, d.Disk), ceiling(500_000))
}

// TestFileFails: a Save that fails at any step changes nothing of what is
// known, is an error, and leaves the next one both slots to write.
func TestFileFails(t *testing.T) {
	for at := range 4 {
		d := &tape{Disk: snowflaketest.NewDisk()}
		f := open(t, d)
		save(t, f, ceiling(500_000))
		d.steps = nil
		d.fail = func(step) error {
			if len(d.steps) > at {
				return snowflaketest.ErrDisk
			}
			return nil
		}
		lower := ceiling(1)
		if err := f.Save(lower); !errors.Is(err, snowflaketest.ErrDisk) || len(d.steps) != at+1 {
			t.Errorf("step %d: %v after %d steps", at, err, len(d.steps))
		}
		wantSaved(t, f, ceiling(500_000))
		// The slot that is not in question is left alone.
		good := "1"
		if at > 1 {
			good = "0"
		}
		d.steps, d.fail = nil, nil
		save(t, f, ceiling(500_001))
		if len(d.steps) != 4 || d.steps[0].slot() == good || d.steps[2].slot() != good {
			t.Errorf("step %d: then %d steps, first slot %s", at, len(d.steps), d.steps[0].slot())
		}
	}
}

// TestFileUnreadable: a slot that the disk fails to read is a lost one; if there
// is no other, that is an error, and not a new file.
func TestFileUnreadable(t *testing.T) {
	d := snowflaketest.NewDisk()
	save(t, open(t, d), ceiling(500_000))
	for slot := range 2 {
		f := open(t, unreadable{d, func(off int64) bool { return off == int64(slot*slotSize) }})
		wantSaved(t, f, raised(ceiling(500_000)))
	}
	for name, d := range map[string]snowflake.Disk{
		"both": unreadable{d, func(int64) bool { return true }},
		"one":  unreadable{snowflaketest.NewDisk(), func(off int64) bool { return off > 0 }},
	} {
		if _, err := snowflake.NewFile(d); !errors.Is(err, snowflaketest.ErrDisk) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.Close()
	if _, err := snowflake.NewFile(d); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

type unreadable struct {
	snowflake.Disk
	at func(off int64) bool
}

func (d unreadable) ReadAt(p []byte, off int64) (int, error) {
	if d.at(off) {
		return 0, snowflaketest.ErrDisk
	}
	return d.Disk.ReadAt(p, off)
}

// TestFileOfAKilledProcess: what it wrote without a sync is made durable before
// the other slot is overwritten.
func TestFileOfAKilledProcess(t *testing.T) {
	random := allocatortest.Seed(t)
	for range 100 {
		d := snowflaketest.NewDisk()
		save(t, open(t, d), ceiling(500_000))
		killed := &tape{Disk: d}
		f := open(t, killed)
		killed.fail = func(s step) error {
			if s.data == nil {
				return snowflaketest.ErrDisk
			}
			return nil
		}
		f.Save(ceiling(500_001))
		again := &tape{Disk: d.Kill()}
		f = open(t, again)
		wantSaved(t, f, ceiling(500_001))
		again.fail = killed.fail
		f.Save(ceiling(500_002))
		after := open(t, again.PowerFail(random))
		wantSaved(t, after, ceiling(500_001), raised(ceiling(500_001)), ceiling(500_002))
	}
}

// TestFileHangs: a disk that hangs keeps nobody from asking what is saved, and
// is not closed under a Save.
func TestFileHangs(t *testing.T) {
	d := &tape{Disk: snowflaketest.NewDisk()}
	f := open(t, d)
	save(t, f, ceiling(500_000))
	hanging, closing, goOn := make(chan bool), make(chan bool), make(chan bool)
	var once sync.Once
	d.fail = func(step) error {
		once.Do(func() {
			close(hanging)
			<-goOn
		})
		return nil
	}
	saved, closed := make(chan error), make(chan error)
	go func() { saved <- f.Save(ceiling(500_001)) }()
	<-hanging
	wantSaved(t, f, ceiling(500_000))
	go func() {
		close(closing)
		closed <- f.Close()
	}()
	<-closing
	close(goOn)
	if err := errors.Join(<-saved, <-closed); err != nil {
		t.Error(err)
	}
	wantSaved(t, f, ceiling(500_001))
	d.fail = nil
	if err := f.Save(ceiling(500_002)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Save after Close: %v", err)
	}
}
