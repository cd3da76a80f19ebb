package allocator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator/opaque"
)

// Index is what a generator knows of every tag: how far it is in use, by its own claims and by
// those of others (its mark), and what the record said last. A store that offers IDs below a mark
// went backwards.
//
// Marks are kept in a file, see [OpenIndex]. No mark is ever dropped: only the mark shows that a
// store went backwards, and it must be in memory when the disk fails.
//
// Its methods are safe for concurrent use.
type Index struct {
	mu     sync.Mutex // never held across I/O, nor while many names are sorted
	of     map[string]indexed
	added  []string         // names that sorted lacks; some may come twice
	dirty  map[string]int64 // marks that the file lacks; nil: there is no file
	opaque string           // the name of an opaque tag; empty: no record was of one
	bad    int              // records that cannot be used
	pass   uint8            // how many readings of all records began, modulo 256

	listing sync.Mutex // taken before mu
	sorted  []string

	file *markFile // nil: kept in memory only
}

// indexed is an entry of the index. It is small, because there may be a million.
type indexed struct {
	end      int64  // the mark
	revision uint64 // of the record that was seen last; 0: none was
	step     int64  // in that record
	claimed  int64  // when its last range was claimed, Unix seconds; 0: never
	order    indexedOrder
	deleted  bool
	damaged  bool
	poll     uint8 // the last reading of the database that had the row
	pass     uint8 // the last reading of all records that had this one
}

// indexedOrder is the place of an order in orders: a byte, where an [Order] needs sixteen.
type indexedOrder uint8

const (
	indexedTrend indexedOrder = iota
	indexedStrict
)

// orders are all that there are. The first ones are the constants above.
var orders = func() []Order {
	all := []Order{Trend, Strict}
	for _, d := range opaque.Domains() {
		all = append(all, OpaqueOrder(d))
	}
	return all
}()

func (o indexedOrder) kind() string { return Tag{Order: orders[o]}.Kind() }

// NewIndex returns an index that is kept in memory only.
func NewIndex() *Index { return newIndex(nil) }

func newIndex(ends map[string]int64) *Index {
	x := &Index{of: make(map[string]indexed, len(ends))}
	for tag, end := range ends {
		x.of[tag] = indexed{end: end}
	}
	return x
}

// End is the mark of a tag: the least ID that a new range may start with. 0: nothing is known of
// it.
func (x *Index) End(tag string) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of[tag].end
}

// Order is that of a tag by its record that was seen last. A tag of which none was seen counts as
// one of trend order.
func (x *Index) Order(tag string) Order {
	x.mu.Lock()
	defer x.mu.Unlock()
	return orders[x.of[tag].order]
}

func (x *Index) deleted(tag string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of[tag].deleted
}

// Opaque is the name of an opaque tag whose record was seen; empty: there was none.
func (x *Index) Opaque() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.opaque
}

// opaqueBefore says what shows that there are, or were, opaque tags; empty: nothing.
func (x *Index) opaqueBefore() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.opaque != "":
		return fmt.Sprintf("%s is or was opaque", x.opaque)
	case x.bad > 0:
		return fmt.Sprintf("records of tags that cannot be read: %d", x.bad)
	}
	return ""
}

// Ends returns the mark of each tag that has one.
func (x *Index) Ends() map[string]int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	ends := make(map[string]int64, len(x.of))
	for tag, e := range x.of {
		if e.end > 0 {
			ends[tag] = e.end
		}
	}
	return ends
}

// Observe raises the mark of a tag to end: the IDs below are in use. The file has it within a few
// seconds.
func (x *Index) Observe(tag string, end int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.of[tag]
	if end > e.end {
		e.end = end
		x.setLocked(tag, e)
		x.dirtyLocked(tag, end)
	}
}

func (x *Index) dirtyLocked(tag string, end int64) {
	if x.dirty != nil {
		x.dirty[tag] = max(x.dirty[tag], end)
	}
}

// setLocked sets the entry of a tag, whose name may be a part of a longer text.
func (x *Index) setLocked(tag string, e indexed) {
	if _, known := x.of[tag]; !known {
		tag = strings.Clone(tag)
	}
	x.of[tag] = e
}

// note takes in a record that was written, pushed or watched, and returns the entry as it was. A
// record that is older than the one before changes only the mark, unless it is one of the first of
// a watch: then the store may have been set back.
func (x *Index) note(s Stored, first bool) (was indexed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was = x.of[s.Name]
	e := was
	if s.MaxID > e.end {
		e.end = s.MaxID
		x.dirtyLocked(s.Name, e.end)
	}
	if first || s.Revision >= e.revision {
		e.revision, e.step, e.deleted, e.pass = s.Revision, s.Step, s.Deleted, x.pass
		if s.Revision != 0 { // else there is only a claim
			e.order = indexedOrder(max(slices.Index(orders, s.Order), 0))
		}
		if x.opaque == "" && e.order > indexedStrict {
			x.opaque = strings.Clone(s.Name)
		}
		if s.Last.First != 0 {
			e.claimed = s.Last.Time.Unix()
		}
	}
	if e != was {
		x.setLocked(s.Name, e)
	}
	if was.revision == 0 && s.Revision != 0 {
		x.added = append(x.added, strings.Clone(s.Name))
	}
	return was
}

// refresh lets sync read all records, which notes each, and then forgets the records that are not
// there any more. The marks stay.
func (x *Index) refresh(sync func() error) error {
	x.mu.Lock()
	x.pass++
	x.mu.Unlock()
	if err := sync(); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for tag, e := range x.of {
		if e.revision != 0 && e.pass != x.pass && !e.damaged {
			e.revision, e.deleted = 0, false
			x.of[tag] = e
		}
	}
	return nil
}

// damage notes whether the record of a tag cannot be used, and reports whether that has changed.
func (x *Index) damage(tag string, damaged bool) (changed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.of[tag]
	if changed = e.damaged != damaged; changed {
		e.damaged = damaged
		if x.bad--; damaged {
			x.bad += 2
		}
		x.setLocked(tag, e)
		x.added = append(x.added, strings.Clone(tag))
	}
	return changed
}

// names returns the names of tags that have a record and are not deleted, as a query asks for them,
// and where to go on; empty: that was all.
func (x *Index) names(q Query) (found []string, next string) {
	x.listing.Lock()
	defer x.listing.Unlock()
	x.mu.Lock()
	added := x.added
	x.added = nil
	x.mu.Unlock()
	if len(added) > 0 {
		x.sorted = append(x.sorted, added...)
		slices.Sort(x.sorted)
		x.sorted = slices.Compact(x.sorted)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	from, _ := slices.BinarySearch(x.sorted, max(q.After, q.Prefix))
	for _, name := range x.sorted[from:] {
		switch {
		case len(found) == q.Limit:
			return found, found[q.Limit-1]
		case !strings.HasPrefix(name, q.Prefix) && name > q.Prefix:
			return found, ""
		case q.Match(name) && !x.of[name].deleted:
			found = append(found, name)
		}
	}
	return found, ""
}

// recent returns the tags of which a range was claimed since then, but strict ones: nothing of
// these can be loaded ahead. Those that were claimed last come first.
func (x *Index) recent(since time.Time) []string {
	x.mu.Lock()
	used := make(map[string]int64)
	for tag, e := range x.of {
		if e.claimed >= since.Unix() && e.order != indexedStrict && !e.deleted && e.revision != 0 {
			used[tag] = e.claimed
		}
	}
	x.mu.Unlock()
	return slices.SortedFunc(maps.Keys(used), func(a, b string) int {
		return cmp.Or(cmp.Compare(used[b], used[a]), strings.Compare(a, b))
	})
}

// polled notes that a reading of the database had the row of a tag, or only its mark, and returns
// the entry. For a tag in trend order that is not deleted, a mark is not enough: its row is gone.
func (x *Index) polled(tag string, round uint8, row bool) indexed {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, known := x.of[tag]
	if known && (row || e.deleted || e.order != indexedTrend) {
		e.poll = round
		x.of[tag] = e
	}
	return e
}

// unpolled returns the tags of trend order whose row the reading did not have, and the other
// records and tombstones of which it had no mark.
func (x *Index) unpolled(round uint8) (gone, unmarked []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for tag, e := range x.of {
		switch {
		case e.revision == 0 || e.poll == round:
		case e.order == indexedTrend && !e.deleted:
			gone = append(gone, tag)
		default:
			unmarked = append(unmarked, tag)
		}
	}
	return gone, unmarked
}
