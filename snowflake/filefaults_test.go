package snowflake_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestFileFaults saves at random, on a disk that fails at random, with starts after kills
// and power failures, and slots that are damaged.
func TestFileFaults(t *testing.T) {
	random := allocatortest.Seed(t)
	var exact, higher, lost int
	for range 100 {
		m := model{T: t, random: random, disk: snowflaketest.NewDisk()}
		m.file = open(t, m.disk)
		for range 40 {
			switch n := random.IntN(20); {
			case n < 13:
				m.save()
			case n < 15:
				m.fail()
			case n < 17:
				m.damage()
			case n < 19:
				m.kill()
			default:
				m.restart(m.disk.PowerFail(random))
			}
			if t.Failed() {
				return
			}
		}
		exact, higher, lost = exact+m.exact, higher+m.higher, lost+m.lost
	}
	if exact == 0 || higher == 0 || lost == 0 {
		t.Errorf("%d starts found the last state, %d one that stands for it, %d none", exact, higher, lost)
	}
}

// model knows what a File may have.
type model struct {
	*testing.T
	random *rand.Rand
	disk   *snowflaketest.Disk
	share  float64 // of the steps that fail
	file   *snowflake.File

	saved bool
	may   []snowflake.Saved // the last one saved, if any, and those that were tried since
	// How many slots may be bad: by damage, and by Saves that failed. Each
	// Save that succeeds writes one at least.
	damaged, failed, good int

	exact, higher, lost int // starts
}

func (m *model) save() {
	before, known := m.file.Saved()
	s := m.next(before, known)
	if err := m.file.Save(s); err != nil {
		after, ok := m.file.Saved()
		if after != before || ok != known {
			m.Errorf("a Save that failed left %+v, %v", after, ok)
		}
		m.may = append(m.may, s)
		m.failed, m.good = 1, 0
		return
	}
	wantSaved(m.T, m.file, s)
	m.saved, m.may = true, []snowflake.Saved{s}
	if m.good++; m.good == 2 {
		m.damaged, m.failed = 0, 0
	}
}

// next returns what a generator, or a careless one, may save next.
func (m *model) next(s snowflake.Saved, known bool) snowflake.Saved {
	if !known {
		return kept(func(s *snowflake.Saved) { s.Node = fmt.Sprint(m.random.Uint32()) })
	}
	switch m.random.IntN(12) {
	case 0:
		s.Ceiling += slack
	case 1:
		s.Ceiling += slack + 1
	case 2:
		s.Ceiling += m.random.Int64N(100_000)
	case 3:
		s.Ceiling = m.random.Int64N(s.Ceiling + 1)
	case 4:
		s.ReservedUntil = m.random.Int64N(2*s.ReservedUntil + 2)
	case 5:
		s.Pending = fmt.Sprint(m.random.Uint32())
	case 6:
		s.Incarnation, s.Pending = s.Pending, ""
	case 7:
		s.Worker = m.random.Int64N(1025) - 1
		s.Ceiling = m.random.Int64N(1_000_000)
	default:
		s.Ceiling += m.random.Int64N(2001)
		s.ReservedUntil += m.random.Int64N(3) * 1000
	}
	return s
}

func (m *model) fail() {
	m.share = []float64{0, 0, 0.1, 0.5}[m.random.IntN(4)]
	m.disk.Fail(m.random, m.share)
}

// damage spoils a slot of the file that is in use.
func (m *model) damage() {
	m.disk.Fail(nil, 0)
	noise, at := make([]byte, []int{1, 512, slotSize}[m.random.IntN(3)]), m.random.IntN(2)*slotSize
	switch m.random.IntN(3) {
	case 0: // zeros
	case 1:
		for i := range noise {
			noise[i] = byte(128 + m.random.IntN(128)) // in no slot
		}
	case 2: // another digit in the text, if there was one
		noise, at = []byte{byte('0' + m.random.IntN(10))}, at+m.random.IntN(400)
	}
	change(m.T, m.disk, at, noise)
	m.disk.Fail(m.random, m.share)
	m.damaged, m.good = m.damaged+1, 0
}

// kill ends the process. A slot whose sync failed may look good to the next, and be
// bad when the power fails.
func (m *model) kill() {
	m.damaged, m.failed = m.damaged+m.failed, 0
	m.restart(m.disk.Kill())
}

// restart opens the file anew and judges what it says.
func (m *model) restart(d *snowflaketest.Disk) {
	m.disk, m.file, m.share, m.good = d, open(m.T, d), 0, 0
	s, ok := m.file.Saved()
	intact := m.damaged+m.failed == 0
	switch {
	case !ok:
		m.lost++
		if m.saved && m.damaged+m.failed < 2 {
			m.Errorf("nothing is left of %+v, with %d slots damaged and %d that may be", m.may, m.damaged, m.failed)
		}
	case intact && m.saved && s == m.may[0]:
		m.exact++
	case !intact && slices.ContainsFunc(m.may, func(c snowflake.Saved) bool { return standsFor(s, c) }):
		m.higher++
	default:
		m.Errorf("read %+v\nwhile it may be one of %+v (intact: %v)", s, m.may, intact)
	}
}

// standsFor reports whether a start from s is as good as one from c.
func standsFor(s, c snowflake.Saved) bool {
	if s.Ceiling < c.Ceiling || s.Ceiling > c.Ceiling+slack || s.ReservedUntil > c.ReservedUntil {
		return false
	}
	s.Ceiling, s.ReservedUntil = c.Ceiling, c.ReservedUntil
	return s == c
}
