//go:build drills

package tests

import (
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
)

// Two databases both take themselves for the primary for half a minute. Generators change sides at random moments,
// and now and then one database is given the state of the other, or an older one of its own. No ID comes twice.
func TestDrillSplitBrain(t *testing.T) {
	seed := allocatortest.Seed(t)
	s := newSplit(t)
	s.join(0, 1, [3]int{0, 1, 1})
	backUp(t, s.dbs[0])
	rounds := [4]int{}
	for began := time.Now(); time.Since(began) < 30*time.Second; {
		action := seed.IntN(20)
		switch action {
		case 0:
			from := seed.IntN(2)
			s.join(from, 1-from, [3]int{seed.IntN(2), seed.IntN(2), seed.IntN(2)})
			backUp(t, s.dbs[0])
		case 1:
			setBack(t, s.dbs[0])
		case 2:
			backUp(t, s.dbs[0])
		default:
			action = 3
			s.ways[seed.IntN(3)].Lead(s.addrs[seed.IntN(2)])
		}
		rounds[action]++
		s.load.checkIDs()
		time.Sleep(time.Duration(seed.IntN(300)) * time.Millisecond)
	}
	t.Logf("%d copies, %d restores, %d backups, %d changes of sides", rounds[0], rounds[1], rounds[2], rounds[3])
	s.load.more(300)
	s.end(bus.StoreBehind) // one database does not follow the other
}
