package allocator_test

import (
	"context"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// wrongTaker is an allocator for one strict tag that breaks the promise in one of two ways.
type wrongTaker struct {
	node  *orderNode
	late  bool // it serves a request that came after the claim was sent
	keeps bool // it keeps what is left over of a claim

	mu      sync.Mutex
	queue   []*wrongWaiter
	claims  bool // a claim is under way
	leftBut allocator.Range
}

type wrongWaiter struct {
	n    int64
	left bool
	done chan allocator.Range
}

// Take returns n IDs.
func (a *wrongTaker) Take(ctx context.Context, tag string, n int64) ([]allocator.Range, error) {
	w := &wrongWaiter{n: n, done: make(chan allocator.Range, 1)}
	a.mu.Lock()
	if rest := a.leftBut; a.keeps && rest.Len() > n {
		a.leftBut.First += n
		a.mu.Unlock()
		return []allocator.Range{{First: rest.First, Last: rest.First + n - 1}}, nil
	}
	a.queue = append(a.queue, w)
	if !a.claims {
		a.claims = true
		a.node.w.late.Go(func() { a.claim(tag) })
	}
	a.mu.Unlock()
	select {
	case r := <-w.done:
		return []allocator.Range{r}, nil
	case <-ctx.Done():
		a.mu.Lock()
		defer a.mu.Unlock()
		w.left = true
		return nil, ctx.Err()
	}
}

// claim serves the queue until it is empty.
func (a *wrongTaker) claim(tag string) {
	for {
		a.mu.Lock()
		plan, n := len(a.queue), int64(0)
		for _, w := range a.queue {
			n += w.n
		}
		a.claims = plan > 0
		a.mu.Unlock()
		if plan == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		grant, err := a.node.Reserve(ctx, tag, n, 1)
		cancel()
		a.mu.Lock()
		for i := 0; i < len(a.queue) && (i < plan || a.late); i++ {
			w := a.queue[0]
			if err != nil || !w.left && w.n > grant.Len() {
				break
			}
			a.queue, i = a.queue[1:], i-1
			plan--
			if !w.left {
				w.done <- allocator.Range{First: grant.First, Last: grant.First + w.n - 1}
				grant.First += w.n
			}
		}
		if err == nil && grant.Len() > 0 {
			a.leftBut = grant.Range
		}
		a.mu.Unlock()
		time.Sleep(time.Microsecond)
	}
}
