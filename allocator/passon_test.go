package allocator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestPassedOnOnce: a generator that loses each race passes its own requests on, and refuses those that others have
// passed on to it. Left in its queue they would wait with it until their time was over.
func TestPassedOnOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		s.createTag(strictTag("invoice"))
		next := int64(1000)
		passed := func(_ context.Context, node, tag string, n int64) (allocator.Range, error) {
			if node != "winner" || tag != "invoice" {
				t.Errorf("requests for %s were passed on to %q", tag, node)
			}
			next += n
			return allocator.Range{First: next - n, Last: next - 1}, sleep(t.Context(), 100*time.Millisecond)
		}
		a := start(t, allocator.Config{Records: s, PassOn: passed})
		if _, err := a.Take(t.Context(), "invoice", 1); err != nil { // now it is known as strict
			t.Fatal(err)
		}
		s.onReserve(func(context.Context, string, int64) error {
			return &allocator.OvertakenError{Tag: "invoice", Run: "winner"}
		})
		ofPeer, err := a.RequestForPeer("invoice", 5)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		own := make(chan error, 1)
		go func() { _, err := a.Take(t.Context(), "invoice", 2); own <- err }()
		if ranges, err := ofPeer.Wait(t.Context()); !errors.Is(err, allocator.ErrConflict) || time.Since(begin) > 100*time.Millisecond {
			t.Errorf("the request of another generator ended after %v: %v, %v", time.Since(begin), ranges, err)
		}
		synctest.Wait() // the own one was passed on, and waits
		if _, err := a.RequestForPeer("invoice", 5); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("a request came while this generator passes on its own: %v", err)
		}
		if err := <-own; err != nil || next != 1002 {
			t.Errorf("the own request: %v; the winner claimed up to %d", err, next)
		}
		if _, err := a.RequestForPeer("invoice", 5); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("a request came while the next ones are passed on at once: %v", err)
		}
		if left, refills := a.Has("invoice"); left > 0 || refills {
			t.Errorf("it offers %d, %v, and would refuse what it is asked for", left, refills)
		}
	})
}
