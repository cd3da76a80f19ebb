package bus

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
)

func TestNextSharesRequests(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	first := u.next(far(t), "order", 1)
	held := u.request(1)
	all := u.next(far(t), "order", 100)
	u.waiting("order", 100)
	respond(t, held, "1")
	u.get(first, 1)
	respond(t, u.request(100), "2-51\n1002-1051")
	if got, want := u.get(all, 100), slices.Concat(from(2, 51), from(1002, 1051)); !slices.Equal(got, want) {
		t.Errorf("%d; want %d", got, want)
	}
	u.over()

	// It works again. No ID of an opaque tag is next to another one.
	first = u.next(far(t), "coupon", 1)
	held = u.request(1)
	all = u.next(far(t), "coupon", 4)
	u.waiting("coupon", 4)
	respond(t, held, "7")
	u.get(first, 1)
	respond(t, u.request(4), "900\n3\n41\n12")
	if got := u.get(all, 4); !slices.Equal(got, []int64{3, 12, 41, 900}) {
		t.Errorf("%d", got)
	}
	u.over()
}

// A caller leaves at once and alone. No later caller gets its ID.
func TestNextLeaves(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	first := u.next(far(t), "order", 1)
	held := u.request(1)
	stay := u.next(far(t), "order", 2)
	ctx, cancel := context.WithCancel(t.Context())
	leave := u.next(ctx, "order", 3)
	u.waiting("order", 5)
	respond(t, held, "1")
	u.get(first, 1)

	held = u.request(5)
	early, stop := context.WithCancel(t.Context())
	never := u.next(early, "order", 1)
	u.waiting("order", 1)
	stop() // before the request
	u.fails(never, 1, context.Canceled)
	u.waiting("order", 0)
	later := u.next(far(t), "order", 2)
	u.waiting("order", 2)
	cancel()
	u.fails(leave, 3, context.Canceled)
	respond(t, held, "11-15")
	if got := u.get(stay, 2); got[1] > 15 {
		t.Errorf("%d; want two of 11 to 15", got)
	}
	respond(t, u.request(2), "21-22")
	if got := u.get(later, 2); !slices.Equal(got, from(21, 22)) {
		t.Errorf("%d; want 21 and 22", got)
	}
	u.over()
}

// A caller gets no ID below one that another client got before the call, although some are left.
func TestNextKeepsOrder(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	other := u
	other.Client = NewClient(u.conn(), patient) // a hedge of it would get an answer of the other one
	first := u.next(far(t), "invoice", 1)
	held := u.request(1)
	ctx, cancel := context.WithCancel(t.Context())
	leave, stay := u.next(ctx, "invoice", 2), u.next(far(t), "invoice", 1)
	u.waiting("invoice", 3)
	respondStrict(t, held, "1")
	u.get(first, 1)

	held = u.request(3) // the generator gives it 2-4, and the answer is on its way
	before := other.next(far(t), "invoice", 1)
	respondStrict(t, u.request(1), "5")
	other.get(before, 1)
	later := u.next(far(t), "invoice", 1)
	u.waiting("invoice", 1)
	cancel()
	u.fails(leave, 2, context.Canceled)
	respondStrict(t, held, "2-4")
	u.get(stay, 1)
	respondStrict(t, u.request(1), "6")
	if got := u.get(later, 1); got[0] != 6 {
		t.Errorf("after 5 a caller got %d", got[0])
	}
	u.over()
	other.over()
}

// Where some requests of a batch fail, the IDs of the others have callers.
func TestNextErrorOfTheRest(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	first := u.next(far(t), "order", 1)
	held := u.request(1)
	all := u.next(far(t), "order", 4)
	u.waiting("order", 4)
	respond(t, held, "1")
	u.get(first, 1)
	refuse(t, u.request(4), 413, BatchTooLarge)
	respond(t, u.request(2), "2-3")
	refuse(t, u.request(2), 507, Exhausted)
	var got, failed int
	for range 4 {
		if r := <-all; r.err == nil && (r.id == 2 || r.id == 3) {
			got++
		} else if r.id == 0 && errors.Is(r.err, Exhausted) {
			failed++
		}
	}
	if got != 2 || failed != 2 {
		t.Errorf("%d got the IDs that were there, %d were refused; want 2 and 2", got, failed)
	}
	u.over()
}

// A request ends when all its callers have left, also one that is tried again and again, and holds up no later caller.
func TestNextGivesUp(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	leave := u.next(ctx, "order", 1)
	for range 3 {
		refuse(t, u.request(1), 503, Draining)
	}
	u.request(1) // and never answered
	cancel()
	u.fails(leave, 1, context.Canceled, Draining)
	u.over()

	ctx, cancel = context.WithCancel(t.Context())
	leave = u.next(ctx, "order", 1)
	u.request(1)
	later := u.next(far(t), "order", 2)
	u.waiting("order", 2)
	cancel()
	u.fails(leave, 1, context.Canceled)
	respond(t, u.request(2), "8-9")
	u.get(later, 2)
	u.over()
}

// Who wants to leave when the answer is there has its ID.
func TestNextLeavesTooLate(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	g, b, _, err := u.tagGroups.join("order", func() (*source, error) { return u.tag("order") }, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	respond(t, u.request(1), "5")
	<-b.done
	if u.tagGroups.leave(g, b) {
		t.Error("it leaves without its ID")
	}
	if id, err := b.one(); err != nil || id != 5 {
		t.Errorf("%d, %v", id, err)
	}
	u.over()
}

// The client's timeout bounds callers without a deadline. A caller's own deadline stays: when the time of its batch is
// over, it joins another one.
func TestNextTimeout(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, Timeout(50*time.Millisecond))
	patient := u.next(far(t), "order", 2)
	impatient := u.next(t.Context(), "order", 3)
	u.fails(impatient, 3, context.DeadlineExceeded)
	last := int64(0)
	serve(t, u, func(msg *nats.Msg) {
		n, _ := strconv.ParseInt(string(msg.Data), 10, 64)
		respond(t, msg, Range{First: last + 1, Last: last + n}.String())
		last += n
	})
	u.get(patient, 2)

	// So does one for which a quota leaves time, when it does not for another caller of the batch.
	w := newUnderTest(t)
	first := w.next(far(t), "order", 1)
	held := w.request(1)
	patient = w.next(far(t), "order", 1)
	w.waiting("order", 1)
	soon, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	impatient = w.next(soon, "order", 1)
	w.waiting("order", 2)
	respond(t, held, "1")
	w.get(first, 1)
	refuseFor(t, w.request(2), 429, QuotaExceeded, time.Minute)
	refuseFor(t, w.request(1), 429, QuotaExceeded, time.Minute)
	w.fails(impatient, 1, QuotaExceeded)
	respond(t, w.request(1), "2")
	w.get(patient, 1)

	// Without one there is none.
	v := newUnderTest(t, Timeout(0))
	forever := v.next(context.Background(), "order", 1)
	respond(t, v.request(1), "1")
	v.get(forever, 1)
	v.over()
}

// Of a strict tag nothing is fetched ahead, however many callers wait.
func TestNextOfManyCallersOfAStrictTag(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	strict := u.next(far(t), "invoice", 1)
	held := u.request(1)
	many := u.next(far(t), "invoice", manyCallers)
	u.waiting("invoice", manyCallers)
	respondStrict(t, held, "1")
	u.get(strict, 1)
	respondStrict(t, u.request(manyCallers), Range{First: 2, Last: 1 + manyCallers}.String())
	u.get(many, manyCallers)
	u.over()
}

// The IDs that a caller gets from one generator increase, also those that others fetched for it. Each comes once.
func TestNextIncreases(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	last := int64(0)
	serve(t, u, func(msg *nats.Msg) {
		n, err := strconv.ParseInt(string(msg.Data), 10, 64)
		if err != nil {
			t.Error(err)
		}
		respond(t, msg, Range{First: last + 1, Last: last + n}.String())
		last += n
	})
	const callers, each = 4 * manyCallers, 100
	ids := make([]int64, callers*each)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n, before := 0, int64(0); n < each; n++ {
				id, err := u.Next(t.Context(), "order")
				if err != nil || id <= before {
					t.Errorf("%d after %d: %v", id, before, err)
				}
				before, ids[i*each+n] = id, id
			}
		})
	}
	all.Wait()
	oneWay(t, "order", ids, []Range{{First: 1, Last: 1 << 62}})
}

// serve answers all requests with f.
func serve(t *testing.T, u underTest, f func(*nats.Msg)) {
	t.Helper()
	done := make(chan struct{})
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			select {
			case msg := <-u.requests:
				f(msg)
			case <-done:
				return
			}
		}
	})
	t.Cleanup(func() { close(done); serving.Wait() })
}
