package bus

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
)

// A pool of a strict tag is refused: the IDs that it fetches ahead would not be in order. Its callers get no ID from
// the answer that says so, nor one that the pool had before, should there be any. It sends no more requests.
func TestPoolOfAStrictTag(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"by the first answer": 0, "by a later answer": 2} {
		u := newUnderTest(t)
		p, err := u.Pool("invoice", Ahead(4, 4))
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan called, 3)
		request := func(n int) *nats.Msg { // not one that was sent again, because the machine is slow
			for {
				if msg := <-u.requests; string(msg.Data) == strconv.Itoa(n) {
					return msg
				}
			}
		}
		next := func() {
			id, err := p.Next(testkit.Context(t))
			results <- called{id, err}
		}
		refused := func(r called) {
			t.Helper()
			e, ok := errors.AsType[*Error](r.err)
			if !ok || r.id != 0 || e.Reason != BadRequest || !strings.Contains(e.Message, "tag invoice is strict") || !strings.Contains(e.Message, "use Next or Take") {
				t.Fatalf("%s: %d, %v; want that the tag is strict", name, r.id, r.err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if before > 0 {
			go next()
			respond(t, request(4), "1-4")
			<-results
			for range before - 1 {
				if id, err := p.Next(ended); err != nil {
					t.Errorf("%s: %d, %v", name, id, err)
				}
			}
			respondStrict(t, request(2), "11-12")
		} else {
			for range 3 {
				go next()
			}
			refuse(t, request(4), 503, Draining) // it may have any order
			respondStrict(t, request(4), "1-4")
			for range 3 {
				refused(<-results)
			}
		}
		testkit.Eventually(t, "the pool has read the answer", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.fetching == nil
		})
		id, err := p.Next(ended) // has its answer at once
		refused(called{id, err})
		if unused := p.Close(); unused != nil {
			t.Errorf("%s: Close returned %v", name, unused)
		}
		if id, err := p.Next(ended); !errors.Is(err, ErrPoolClosed) {
			t.Errorf("%s: after Close: %d, %v", name, id, err)
		}
		u.over()
	}
}
