package generator

import (
	"context"
	"fmt"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
)

// An opaque tag has numbers, which are reserved, remembered, reported and lent like the IDs of any tag. Only an
// answer to a caller has IDs: the numbers after the tag's permutation. So nothing but this file, and what reveals
// IDs, knows of keys.

// Keys are the permutations of opaque tags.
type Keys interface {
	// Known returns the permutation of a tag, if it is opaque and Load or Permutation has succeeded for it; else nil.
	// No numbers of an opaque tag are in memory before.
	Known(tag string) *opaque.Permutation
	// Permutation is that of an opaque tag, of a deleted one too, by its record. Its errors are those of Load.
	Permutation(ctx context.Context, t allocator.Tag) (*opaque.Permutation, error)
	// Check looks whether all generators still have the same secret, and puts a lost one back. t is the record of an
	// opaque tag. An error that matches [allocator.ErrDamaged] says what an operator must do.
	Check(ctx context.Context, t allocator.Tag) error
	allocator.Keys
}

// noKeys are the keys of a generator that keeps no opaque tags.
type noKeys struct{}

var errNoKeys = fmt.Errorf("%w: this generator keeps no opaque tags", allocator.ErrUnavailable)

func (noKeys) Known(string) *opaque.Permutation { return nil }

func (noKeys) Permutation(context.Context, allocator.Tag) (*opaque.Permutation, error) {
	return nil, errNoKeys
}

func (noKeys) Check(context.Context, allocator.Tag) error { return nil }

func (noKeys) Load(context.Context, allocator.Tag) error { return errNoKeys }

func (noKeys) Make(context.Context, allocator.Tag, func(context.Context) (string, error)) (string, error) {
	return "", errNoKeys
}

// conceal returns the IDs of numbers of a tag, each as a range of one. The numbers of a tag that is not opaque are
// its IDs. It may change the numbers.
func (g *Generator) conceal(tag string, numbers []bus.Range) ([]bus.Range, error) {
	p := g.cfg.Keys.Known(tag)
	if p == nil {
		return numbers, nil
	}
	n := int64(0)
	for _, r := range numbers {
		if !p.Has(r.First) || !p.Has(r.Last) {
			return nil, fmt.Errorf("the numbers %v are outside of the domain %s of the opaque tag %s", r, p.Domain(), tag)
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

// fits returns an error if the answer to a request for IDs of an opaque tag does not fit into a message, or too many
// others wait for theirs. Then no number is lost.
func (g *Generator) fits(tag string, req bus.Request) error {
	p := g.cfg.Keys.Known(tag)
	if p == nil {
		return nil
	}
	if most := mostIDs(p.Domain(), req.JSON, g.cfg.Conn.MaxPayload()); req.Count > most {
		return &bus.Error{Code: 413, Reason: bus.BatchTooLarge, Message: fmt.Sprintf(
			"%d IDs were requested of the opaque tag %s, whose answers list each ID: at most %d fit into a NATS message here", req.Count, tag, most)}
	}
	if req.Count > concealInline && g.concealing.full(req.Count) {
		return allocator.ErrOverloaded
	}
	return nil
}

// mostIDs is how many IDs of a domain surely fit into a reply of this size.
func mostIDs(d opaque.Domain, asJSON bool, size int64) int64 {
	last := bus.Range{First: d.Last(), Last: d.Last()}
	one := len(bus.AppendReply(nil, []bus.Range{last}, asJSON))
	two := len(bus.AppendReply(nil, []bus.Range{last, last}, asJSON))
	const digits = 19 // of the count in JSON, of which one is in the reply of one
	return max((size-int64(one)-digits)/int64(two-one)+1, 1)
}
