package bus

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A pool over NATS: what generators give at most, and what they refuse for a while, callers do not
// notice.
func TestPoolOverNATS(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	u := newUnderTest(t, Timeout(testkit.Patience))
	stop := u.generators(random)
	got := make(map[string][]int64)
	for subject, pool := range map[string]func() (*Pool, error){
		"leaf.segment.a": func() (*Pool, error) { return u.Pool("a", Ahead(10, 500)) },
		"leaf.snowflake": func() (*Pool, error) { return u.SnowflakePool(Ahead(10, 500)) },
	} {
		p, err := pool()
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var ids []int64
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 200 {
					id, err := p.Next(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					ids = append(ids, id)
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		for _, r := range p.Close() {
			ids = slices.AppendSeq(ids, r.All())
		}
		got[subject] = ids
	}

	none, err := u.Pool("none")
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if id, err := none.Next(t.Context()); !errors.Is(err, UnknownTag) {
		t.Errorf("of no tag: %d, %v", id, err)
	}
	given := stop()
	for subject, ids := range got {
		oneWay(t, subject, ids, given[subject])
	}
}

// A caller that waits in vain gets the reason.
func TestPoolWithoutGenerators(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	p, err := u.Pool("order")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var callers sync.WaitGroup
	callers.Go(func() {
		if id, err := p.Next(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, StoreUnavailable) {
			t.Errorf("%d, %v", id, err)
		}
	})
	refuse(t, u.request(DefaultLeastAhead), 503, StoreUnavailable)
	u.request(DefaultLeastAhead) // it was told
	cancel()
	callers.Wait()
	callers.Go(func() {
		if id, err := p.Next(far(t)); !errors.Is(err, ErrPoolClosed) {
			t.Errorf("%d, %v", id, err)
		}
	})
	testkit.Eventually(t, "the caller waits", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.filling != nil && p.filling.waiting == 1
	})
	p.Close() // of a request that is not answered
	callers.Wait()
}
