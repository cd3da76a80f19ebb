package generator

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// lostFor is how long presence remembers a generator that fell silent without a last
	// word, because it may be cut off and still answer callers.
	lostFor = time.Hour
	// maxLost is how many of them are remembered.
	maxLost = 100
)

// expireLocked forgets the generators that were not heard for beatExpires, but remembers
// their names.
func (p *presence) expireLocked(now time.Time) {
	maps.DeleteFunc(p.others, func(_ string, m member) bool {
		gone := now.Sub(m.heard) >= beatExpires
		if gone {
			p.lost[m.Node] = m.heard
		}
		return gone
	})
	maps.DeleteFunc(p.lost, func(_ string, heard time.Time) bool { return now.Sub(heard) >= lostFor })
	for len(p.lost) > maxLost {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(p.lost)), func(x, y string) int { return p.lost[x].Compare(p.lost[y]) })
		delete(p.lost, oldest)
	}
	for _, m := range p.others { // a node that was started again
		delete(p.lost, m.Node)
	}
}

// roll returns the other generators that are there, and the nodes of those that fell silent
// without a last word, at one moment: none is missing in both. Both are in the order of nodes.
func (p *presence) roll(now time.Time) (here []beat, lost []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked(now)
	for _, m := range p.others {
		here = append(here, m.beat)
	}
	slices.SortFunc(here, func(x, y beat) int { return cmp.Or(strings.Compare(x.Node, y.Node), strings.Compare(x.ID, y.ID)) })
	return here, slices.Sorted(maps.Keys(p.lost))
}
