package generator

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// concealInline is how many IDs are concealed where requests are read. More would delay the
	// requests after them.
	concealInline = 256
	// concealAhead bounds the IDs of batches that wait to be concealed, for each processor: what
	// one conceals in a quarter of a second.
	concealAhead = 500_000
	// concealWait bounds the wait of a batch. It ends so late only if the machine is busy with
	// other work, and callers give up soon after.
	concealWait = time.Second
)

// concealer makes IDs of the numbers of opaque tags. These are reserved, remembered, reported and
// lent like the IDs of any tag. Only an answer to a caller has IDs: the numbers after the tag's
// permutation.
//
// It bounds the work on batches, which takes as long as they have IDs. That is not done where
// requests are read. So these do not wait for it, and no [valve] would bound it. What it refuses is
// an overload, too. Its methods are safe for concurrent use.
type concealer struct {
	keys       Keys
	conn       *nats.Conn
	overloaded func()        // counts an overload
	slots      chan struct{} // one for each processor
	ids        atomic.Int64  // of the batches that wait or are concealed
}

func newConcealer(keys Keys, conn *nats.Conn, overloaded func()) *concealer {
	return &concealer{keys: keys, conn: conn, overloaded: overloaded, slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// full reports whether a batch of n IDs would be refused now. The first batch is never too large.
func (c *concealer) full(n int64) bool { return c.exceeds(c.ids.Load(), n) }

func (c *concealer) exceeds(ids, n int64) bool {
	if ids == 0 || ids+n <= concealAhead*int64(cap(c.slots)) {
		return false
	}
	c.overloaded()
	return true
}

// enter admits a batch of n IDs, of which run must follow.
func (c *concealer) enter(n int64) error {
	if c.exceeds(c.ids.Add(n)-n, n) {
		c.ids.Add(-n)
		return allocator.ErrOverloaded
	}
	return nil
}

// run calls f for an admitted batch of n IDs when a processor is free for it, or returns an error.
func (c *concealer) run(ctx context.Context, n int64, f func()) error {
	defer c.ids.Add(-n)
	ctx, cancel := context.WithTimeoutCause(ctx, concealWait, allocator.ErrOverloaded)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.slots }()
	f()
	return nil
}

// isLarge reports whether the IDs of a request are not concealed where requests are read.
func (c *concealer) isLarge(tag string, n int64) bool {
	return n > concealInline && c.keys.Known(tag) != nil
}

// conceal returns the IDs of numbers of a tag, each as a range of one. The numbers of a tag that is
// not opaque are its IDs. It may change the numbers.
func (c *concealer) conceal(tag string, numbers []bus.Range) ([]bus.Range, error) {
	p := c.keys.Known(tag)
	if p == nil {
		return numbers, nil
	}
	n := int64(0)
	for _, r := range numbers {
		if !p.Has(r.First) || !p.Has(r.Last) {
			return nil, fmt.Errorf("the numbers %v are outside of the domain %s of the opaque tag %s",
				r, p.Domain(), tag)
		}
		n += r.Len()
	}
	ids := numbers[:0]
	if n > 1 {
		ids = make([]bus.Range, 0, n)
	}
	for _, r := range numbers {
		for number := range r.All() {
			id := p.Conceal(number)
			ids = append(ids, bus.Range{First: id, Last: id})
		}
	}
	return ids, nil
}

// fits returns an error if the answer to a request for IDs of an opaque tag does not fit into a
// message, or too many others wait for theirs. Then no number is lost.
func (c *concealer) fits(tag string, req wire.Request) error {
	p := c.keys.Known(tag)
	if p == nil {
		return nil
	}
	if most := mostIDs(p.Domain(), req.JSON, c.conn.MaxPayload()); req.Count > most {
		return newError(bus.BatchTooLarge, "%d IDs were requested of the opaque tag %s, whose answers list each ID: "+
			"at most %d fit into a NATS message here", req.Count, tag, most)
	}
	if req.Count > concealInline && c.full(req.Count) {
		return allocator.ErrOverloaded
	}
	return nil
}

// mostIDs is how many IDs of a domain surely fit into a reply of this size.
func mostIDs(d opaque.Domain, asJSON bool, size int64) int64 {
	last := bus.Range{First: d.Last(), Last: d.Last()}
	one := len(wire.AppendReply(nil, []bus.Range{last}, asJSON))
	two := len(wire.AppendReply(nil, []bus.Range{last, last}, asJSON))
	const digits = 19 // of the count in JSON, of which one is in the reply of one
	return max((size-int64(one)-digits)/int64(two-one)+1, 1)
}
