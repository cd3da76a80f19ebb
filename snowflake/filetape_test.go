package snowflake_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

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
	if _, err := d.WriteAt(data, int64(at)); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
}

// tape is a disk that records what is done to it. A failing step is not done.
type tape struct {
	*snowflaketest.Disk
	steps []step
	fail  func(step) error
}

// step is a write, or a sync if it has no data.
type step struct {
	at   int64
	data []byte
}

func (s step) slot() string {
	if s.data == nil {
		return "sync"
	}
	return fmt.Sprint(s.at / slotSize)
}

func (d *tape) do(s step) error {
	d.steps = append(d.steps, s)
	if d.fail == nil {
		return nil
	}
	return d.fail(s)
}

func (d *tape) WriteAt(p []byte, off int64) (int, error) {
	if err := d.do(step{off, bytes.Clone(p)}); err != nil {
		return 0, err
	}
	return d.Disk.WriteAt(p, off)
}

func (d *tape) Sync() error {
	if err := d.do(step{}); err != nil {
		return err
	}
	return d.Disk.Sync()
}
