package schema

import (
	"bytes"
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/tests/kit"
)

// A reading that was old when it came, from a replica or because another generator was faster, raises no false
// alarm, and max_id is not moved back.
func TestRaiseAfterAnOldReading(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	other := newStore(t, dsn)
	createTag(t, other, "order", 1, 10)
	p, slow := through(t, dsn)
	s := newStore(t, slow)
	seen := 0
	p.OnRequest(func(data []byte) kit.Action {
		if bytes.Contains(data, []byte("SET max_id = 581 ")) {
			seen++
			execute(t, dsn, "UPDATE leaf_alloc SET max_id = 7001")
		}
		return kit.Forward
	})
	if g, err := s.Reserve(within(t), "order", 1, 501); err != nil || g.First != 7001 || g.Last != 7010 {
		t.Errorf("Reserve: %v, %v", g.Range, err)
	}
	if max := maxID(t, dsn, "order"); seen != 1 || max != 7011 {
		t.Errorf("max_id is %d; it was moved up %d times", max, seen)
	}
}

// Where other programs reserve too, nobody knows how far they were: the tag is refused, and nothing is moved.
func TestRaiseShared(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	s := newStore(t, dsn)
	s.cfg.Shared = true
	createTag(t, s, "order", 1, 10)
	reserve(t, s, "order", 1)
	for range 2 {
		_, err := s.Reserve(within(t), "order", 1, 501)
		if refused, ok := errors.AsType[*allocator.RegressedError](err); !ok || refused.Tag != "order" || refused.Got != 11 || refused.Seen != 501 {
			t.Errorf("Reserve from 501: %v", err)
		}
		if max := maxID(t, dsn, "order"); max != 11 {
			t.Errorf("max_id is %d", max)
		}
	}
	if s.Err() != nil {
		t.Errorf("it is no outage: %v", s.Err())
	}
	setMaxID(t, s, "order", 501) // by an operator
	if g, err := s.Reserve(within(t), "order", 1, 501); err != nil || g.First != 501 {
		t.Errorf("Reserve after an operator moved max_id: %v, %v", g.Range, err)
	}
}

// A tag that is deleted while the table is read is not missed: its IDs could come again.
func TestEndsDuringADeletion(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	other := newStore(t, dsn)
	createTag(t, other, "order", 1, 10)
	reserve(t, other, "order", 499) // no mark has it yet
	p, slow := through(t, dsn)
	s := newStore(t, slow)
	requests := 0
	p.OnRequest(func([]byte) kit.Action {
		if requests++; requests == 2 {
			remove(t, other, "order")
		}
		return kit.Forward
	})
	end := int64(0)
	if err := s.Ends(within(t), func(_ string, to, _ int64) { end = max(end, to) }); err != nil || end != 500 || requests < 2 {
		t.Errorf("Ends: %v; order is at %d, after %d requests", err, end, requests)
	}
}

// Stored reads a max_id that looks too low again in a way that goes to the primary, and changes nothing.
func TestStored(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	createTag(t, newStore(t, dsn), "order", 101, 10)
	p, slow := through(t, dsn)
	s := newStore(t, slow)
	again := 0
	p.OnRequest(func(data []byte) kit.Action {
		if bytes.Contains(data, []byte("FOR UPDATE")) {
			if again++; again == 1 {
				execute(t, dsn, "UPDATE leaf_alloc SET max_id = 7001")
			}
		}
		return kit.Forward
	})
	for _, c := range []struct{ end, want int64 }{{101, 101}, {501, 7001}, {7002, 7001}} {
		if tag, err := s.Stored(within(t), "order", c.end); err != nil || tag.MaxID != c.want {
			t.Errorf("claimed below %d: %+v, %v; want max_id %d", c.end, tag, err, c.want)
		}
	}
	if again == 0 {
		t.Error("it was not read again")
	}
	_, err := s.Stored(within(t), "coupon", 1)
	wantError(t, "Stored", err, allocator.ErrUnknownTag)
}
