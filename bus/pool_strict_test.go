package bus

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

// refused checks that an error says that a pool cannot be of a strict tag, and what to do.
func refused(t *testing.T, r called) {
	t.Helper()
	e, ok := errors.AsType[*Error](r.err)
	if !ok || r.id != 0 || e.Code != 400 || e.Reason != BadRequest {
		t.Fatalf("%d, %v; want a bad_request", r.id, r.err)
	}
	for _, part := range []string{"tag invoice is strict", "would not be in order", "use Next or Take"} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("%q lacks %q", e.Message, part)
		}
	}
}

// The first answer says that the tag is strict. All callers are refused, and no more requests are sent.
func TestPoolOfAStrictTag(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	p, err := u.Pool("invoice")
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan called, 3)
	next := func() {
		id, err := p.Next(testkit.Context(t))
		results <- called{id, err}
	}
	for range 3 {
		go next()
	}
	testkit.Eventually(t, "three callers wait", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.filling != nil && p.filling.waiting == 3
	})
	refuse(t, u.request(DefaultLeastAhead), 503, Draining) // it may have any order
	respondStrict(t, u.request(DefaultLeastAhead), "1-100")
	for range 3 {
		refused(t, <-results)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		id, err := p.Next(ended) // has its answer at once
		refused(t, called{id, err})
	}
	if unused := p.Close(); unused != nil {
		t.Errorf("Close returned %v", unused)
	}
	if id, err := p.Next(ended); !errors.Is(err, ErrPoolClosed) {
		t.Errorf("after Close: %d, %v", id, err)
	}
	u.over()
}

// Should an answer say so later, the pool hands out none of the IDs that it has.
func TestPoolOfATagThatTurnsOutStrict(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	p, err := u.Pool("invoice", Ahead(4, 4))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	results := make(chan called, 1)
	go func() {
		id, err := p.Next(testkit.Context(t))
		results <- called{id, err}
	}()
	respond(t, u.request(4), "1-4")
	if r := <-results; r.id != 1 || r.err != nil {
		t.Fatalf("%d, %v", r.id, r.err)
	}
	if id, err := p.Next(t.Context()); id != 2 || err != nil {
		t.Fatalf("%d, %v", id, err)
	}
	respondStrict(t, u.request(2), "11-12")
	testkit.Eventually(t, "the pool has read the answer", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.end != nil
	})
	id, err := p.Next(t.Context())
	refused(t, called{id, err})
	if unused := p.Close(); unused != nil {
		t.Errorf("Close returned %v", unused)
	}
	u.over()
}
