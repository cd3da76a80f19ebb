package audit

import (
	"context"
	"errors"
	"maps"

	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// revealTaken replaces the IDs that were taken of opaque tags by their numbers: all claims are of numbers.
func (a *auditor) revealTaken(ctx context.Context) error {
	var domains []admin.TagClaims
	err := a.readNamed(ctx, a.Taken.names(), func(page admin.ClaimsPage) {
		for _, c := range page.Claims {
			if c.Opaque != "" {
				domains = append(domains, c)
			}
		}
	})
	if err != nil || len(domains) == 0 {
		return err
	}
	tags := maps.Clone(a.Taken.tags) // what the caller has stays as it is
	for _, c := range domains {
		numbers := new(Runs)
		err := a.reveal(ctx, c, tags[c.Tag].Finish(), numbers)
		if errors.Is(err, bus.UnknownTag) {
			continue // its record is lost. Then its IDs are compared as they are: they were never claimed
		}
		if err != nil {
			return err
		}
		numbers.repeated, numbers.repeats = tags[c.Tag].Repeated() // of IDs, as callers got them
		tags[c.Tag] = numbers
	}
	a.Taken = &Taken{tags: tags}
	return nil
}

// reveal adds the numbers of runs of IDs of an opaque tag. What is above its domain is no ID, and stays as it is:
// nothing there was claimed.
func (a *auditor) reveal(ctx context.Context, c admin.TagClaims, runs []bus.Range, numbers *Runs) error {
	last := opaque.Domain(c.Opaque).Last()
	var ids []bus.ID
	flush := func() error {
		if len(ids) == 0 {
			return nil
		}
		revealed, err := a.Reveal(ctx, admin.RevealRequest{Tag: c.Tag, IDs: ids})
		if err != nil {
			return err
		}
		batch := make([]bus.Range, len(revealed.Numbers))
		for i, n := range revealed.Numbers {
			batch[i] = bus.Range{First: int64(n), Last: int64(n)}
		}
		numbers.Add(batch...)
		ids = ids[:0]
		return nil
	}
	for _, r := range runs {
		if r.Last > last {
			numbers.Add(bus.Range{First: max(r.First, last+1), Last: r.Last})
			r.Last = last
		}
		if r.First > r.Last {
			continue
		}
		for id := range r.All() {
			if ids = append(ids, bus.ID(id)); len(ids) == admin.MostRevealed {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}
