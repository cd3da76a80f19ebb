package bus

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
)

// The IDs of late answers, and those that a fetch under way asks for, are together at most as many as the pool may keep.
func TestLateAnswersKeepTheBound(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	pool, err := u.Pool("order", Ahead(100, 120))
	if err != nil {
		t.Fatal(err)
	}
	ids := make(chan called, 1)
	for i := range 50 {
		go func() { id, err := pool.Next(far(t)); ids <- called{id, err} }()
		if i == 0 {
			respond(t, u.request(100), "1-100")
		}
		u.get(ids, 1)
	}
	half := u.request(50)
	pool.more(&nats.Msg{Data: []byte("201-300")}, time.Now())
	respond(t, half, "301-350")
	testkit.Eventually(t, "the answer to come", func() bool {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return pool.filling == nil
	})
	if unused := pool.Close(); total(unused) != 120 || overlap(unused) {
		t.Errorf("%v are left", unused)
	}
}

// Callers that wait for a fetch take the IDs of a late answer to the fetch before it.
func TestLateAnswersServeWhoWaits(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	pool, err := u.Pool("order", Ahead(1, 10))
	if err != nil {
		t.Fatal(err)
	}
	ids := make(chan called, 3)
	for range 3 {
		go func() { id, err := pool.Next(far(t)); ids <- called{id, err} }()
	}
	held := u.request(1)
	testkit.Eventually(t, "three callers wait", func() bool {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return pool.filling.waiting == 3
	})
	pool.more(&nats.Msg{Data: []byte("7-8")}, time.Now())
	if got := u.get(ids, 2); got[0] != 7 || got[1] != 8 {
		t.Errorf("%v", got)
	}
	respond(t, held, "1")
	if got := u.get(ids, 1); got[0] != 1 {
		t.Errorf("%v", got)
	}
	pool.Close()
}
