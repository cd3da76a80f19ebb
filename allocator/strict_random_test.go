package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// TestStrictOrder lets a few generators serve one strict tag in many random worlds, in virtual time. A request that is sent after
// the answer to another one has arrived must get higher IDs.
func TestStrictOrder(t *testing.T) {
	worlds := 150
	if text := os.Getenv("LEAF_TEST_WORLDS"); text != "" {
		var err error
		if worlds, err = strconv.Atoi(text); err != nil {
			t.Fatalf("LEAF_TEST_WORLDS: %v", err)
		}
	}
	random := allocatortest.Seed(t)
	requests, passed := 0, 0
	for i := range worlds {
		w := newOrderWorld(random.Uint64())
		bubble(t, func(t *testing.T) { w.run(t, startOrderNode) })
		n, err := w.history.Check()
		if err != nil {
			t.Fatalf("%v; in world %d", err, i)
		}
		requests += n
		passed += w.passed
	}
	t.Logf("%d requests were answered, %d were passed on", requests, passed)
	if requests < 100*worlds || passed < worlds {
		t.Errorf("in %d worlds %d requests were answered, and claims were passed on %d times: that is too little", worlds, requests, passed)
	}
}

// orderWorld is some generators of one strict tag in one store, their callers, and an operator. Each thing that may go wrong
// happens once in so many times, in some worlds never.
type orderWorld struct {
	mu     sync.Mutex // of random and passed
	random *rand.Rand
	passed int // claims that another generator made

	memory  *allocatortest.MemoryRecords
	nodes   []*orderNode
	history allocatortest.History
	late    sync.WaitGroup // writes and answers that no claim waits for any more

	far      time.Duration // the distance of the first node from the store
	leaves   int           // a caller leaves before the answer
	fails    int           // an answer of the store is lost, or a generator stands still
	operates int           // the operator does something in 10 ms
	batches  int64         // IDs in a request, at most
	callers  int
}

type taker interface {
	Take(ctx context.Context, tag string, n int64) ([]allocator.Range, error)
}

func newOrderWorld(seed uint64) *orderWorld {
	w := &orderWorld{random: rand.New(rand.NewPCG(seed, seed)), memory: allocatortest.NewMemoryRecords()}
	w.far = pick(w, 0, 0, 5*time.Millisecond, 50*time.Millisecond)
	w.leaves, w.fails, w.operates = pick(w, 0, 3, 10), pick(w, 0, 5, 50), pick(w, 0, 3, 30)
	w.batches, w.callers = pick(w, int64(1), 5, 1000), pick(w, 2, 8, 30)
	for i := range pick(w, 1, 2, 3, 5) {
		n := &orderNode{w: w, name: fmt.Sprint("node", i)}
		if i == 0 {
			n.far = w.far
		}
		n.MemoryRecords = w.memory.Open()
		w.nodes = append(w.nodes, n)
	}
	return w
}

// pick returns one of the values.
func pick[T any](w *orderWorld, values ...T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return values[w.random.IntN(len(values))]
}

// upTo returns a time from 1 ns to d. Most are short.
func (w *orderWorld) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return 1 + time.Duration(w.random.Float64()*w.random.Float64()*float64(d))
}

// once reports true once in n times; never if n is 0.
func (w *orderWorld) once(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return n > 0 && w.random.IntN(n) == 0
}

// run lets the world go on for a second, and until all that was begun is over.
func (w *orderWorld) run(t *testing.T, begin func(t *testing.T, n *orderNode) taker) {
	w.create(t)
	for _, n := range w.nodes {
		n.taker = begin(t, n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var doing sync.WaitGroup
	for range w.callers {
		doing.Go(func() { w.call(t, ctx) })
	}
	doing.Go(func() { w.operate(t, ctx) })
	doing.Wait()
	w.end()
}

// end stops all nodes.
func (w *orderWorld) end() {
	for _, n := range w.nodes {
		if n.stop != nil {
			n.stop()
		}
	}
	w.late.Wait()
}

func (w *orderWorld) create(t *testing.T) {
	write(t, w.memory, "order", func(s allocator.Stored) (allocator.Tag, error) { return s.Create(strictTag("order"), 0) })
}

func strictTag(name string) allocator.Tag {
	return allocator.Tag{Name: name, MaxID: 1, Order: allocator.Strict}
}

// call is one caller, whose requests reach any of the nodes.
func (w *orderWorld) call(t *testing.T, ctx context.Context) {
	for ctx.Err() == nil {
		node, n := pick(w, w.nodes...), 1+int64(w.upTo(time.Duration(w.batches)))%w.batches
		patience := 10 * time.Second
		if w.once(w.leaves) {
			patience = w.upTo(5 * time.Millisecond)
		}
		called := time.Now()
		time.Sleep(w.upTo(time.Millisecond))
		until, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		ranges, err := node.taker.Take(until, "order", n)
		cancel()
		switch {
		case err == nil:
			time.Sleep(w.upTo(100 * time.Microsecond))
			w.history.Add(called, time.Now(), ranges...)
			if ranges[0].Len() != n {
				t.Errorf("%v came for %d IDs", ranges, n)
			}
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, allocator.ErrUnavailable), errors.Is(err, allocator.ErrUnknownTag):
		default:
			t.Errorf("Take: %v", err)
		}
		time.Sleep(w.upTo(pick(w, time.Microsecond, 10*time.Millisecond)))
	}
}

// operate is the operator.
func (w *orderWorld) operate(t *testing.T, ctx context.Context) {
	for sleep(ctx, 10*time.Millisecond) == nil {
		if !w.once(w.operates) {
			continue
		}
		switch pick(w, 0, 1, 2, 3) {
		case 0:
			write(t, w.memory, "order", func(s allocator.Stored) (allocator.Tag, error) { return s.Delete(0) })
			time.Sleep(w.upTo(20 * time.Millisecond))
			w.create(t)
		case 1:
			for _, n := range w.nodes {
				if a, ok := n.taker.(*allocator.Allocator); ok {
					a.EvictIdle() // the next request is the first contact again
				}
			}
		default:
			write(t, w.memory, "order", func(s allocator.Stored) (allocator.Tag, error) {
				to := s.MaxID + 1 + int64(w.upTo(100))
				return s.Change(allocator.Change{MaxID: &to}, 0)
			})
		}
	}
}

// orderNode is one generator. It has the records of its allocator.
type orderNode struct {
	*allocatortest.MemoryRecords
	taker
	w    *orderWorld
	name string
	far  time.Duration
	stop func()
}

// startOrderNode starts an allocator that runs until the world ends.
func startOrderNode(t *testing.T, n *orderNode) taker {
	a, stop := startStop(t, allocator.Config{Records: n, Run: n.name, PassOn: n.passOn})
	n.stop = stop
	return a
}

// Watch lets changes come late.
func (n *orderNode) Watch(ctx context.Context, f func(allocator.Update)) error {
	return n.MemoryRecords.Watch(ctx, func(u allocator.Update) {
		_ = sleep(ctx, n.w.upTo(100*time.Millisecond))
		f(u)
	})
}

func (n *orderNode) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	if err := sleep(ctx, n.far+n.w.upTo(time.Millisecond)); err != nil {
		return allocator.Stored{}, err
	}
	return n.MemoryRecords.Load(ctx, tag)
}

func (n *orderNode) Swap(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
	var made atomic.Uint64 // a late write sets it, too
	err := n.write(ctx, func() error {
		r, err := n.MemoryRecords.Swap(context.WithoutCancel(ctx), t, revision)
		made.Store(r)
		return err
	})
	return made.Load(), err
}

var errLost = errors.New("the answer was lost")

// write is what happens to one write.
func (n *orderNode) write(ctx context.Context, write func() error) error {
	w := n.w
	way := n.far + w.upTo(time.Millisecond)
	if w.once(w.fails) {
		switch pick(w, 0, 1, 2, 3, 4) {
		case 0: // lost before
			_ = sleep(ctx, way)
			return errLost
		case 1: // lost after
			time.Sleep(way)
			_ = write()
			return errLost
		case 2: // done when the generator does not wait for it any more
			w.late.Go(func() {
				time.Sleep(w.upTo(2 * time.Second))
				_ = write()
			})
			_ = sleep(ctx, w.upTo(time.Second))
			return errLost
		case 3: // the generator stands still before it
			time.Sleep(w.upTo(2 * time.Second))
		case 4: // the generator stands still after it
			time.Sleep(way)
			err := write()
			time.Sleep(w.upTo(2 * time.Second))
			return err
		}
	}
	if err := sleep(ctx, way); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	return sleep(ctx, way)
}

// passOn is a request to another node. Its answer may be lost, or come late.
func (n *orderNode) passOn(ctx context.Context, node, tag string, count int64) (allocator.Range, error) {
	w := n.w
	for _, other := range w.nodes {
		if other.name != node || other == n {
			continue
		}
		if err := sleep(ctx, w.upTo(2*time.Millisecond)); err != nil {
			return allocator.Range{}, err
		}
		waiter, err := other.taker.(*allocator.Allocator).RequestForPeer(tag, count)
		if err != nil {
			return allocator.Range{}, err
		}
		answer := make(chan []allocator.Range, 1)
		w.late.Go(func() {
			ranges, _ := waiter.Wait(context.Background())
			time.Sleep(w.upTo(2 * time.Millisecond))
			answer <- ranges
		})
		if w.once(w.fails) {
			time.Sleep(w.upTo(time.Second)) // this generator stands still
		}
		select {
		case ranges := <-answer:
			if len(ranges) == 1 {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.passed++
				return ranges[0], nil
			}
		case <-ctx.Done():
		}
		return allocator.Range{}, errLost
	}
	return allocator.Range{}, errors.New("no such node")
}
