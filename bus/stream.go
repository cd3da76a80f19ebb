package bus

import (
	"context"
	"iter"
	"sync"

	"github.com/leafbus/leafbus/bus/idspace"
)

// Bounds of [Client.Ranges] and the like.
const (
	defaultBatch    = 100_000
	defaultParallel = 4
	limitParallel   = 1000
)

// bulk is a loop over many IDs, which are fetched as the loop uses them.
type bulk struct {
	from     *source
	n        int64
	batch    int64
	parallel int
}

// BulkOption changes how [Client.Ranges] and the like fetch IDs.
type BulkOption func(*bulk)

// Batch is how many IDs one request is for, at least 1. Default: 100,000. If a generator allows
// fewer, requests become smaller.
func Batch(n int64) BulkOption { return func(b *bulk) { b.batch = n } }

// Parallel is how many requests are under way while the loop uses an answer, from 1 to 1,000.
// Default: 4. With 1, the IDs of a single generator are in increasing order. It does not matter for
// a strict tag: one request is under way at a time, and none while the loop uses an answer.
func Parallel(n int) BulkOption { return func(b *bulk) { b.parallel = n } }

// Ranges yields ranges with n IDs of tag in total, for imports. It fetches them while the loop
// works, and holds the answers to [Parallel] requests in memory. An error comes last; the ranges
// before it are valid. A loop that is left early leaves gaps of at most Parallel+1 batches. If the
// context has no deadline, the client's [Timeout] bounds each batch. The first answer says whether
// the tag is strict, so one request goes ahead of the others.
//
// For a strict tag the requests go one after the other. Each is sent when the loop has used the
// answer before it, so the ranges increase strictly. While the loop uses a batch, other callers may
// get higher IDs. A smaller [Batch] makes the batch newer, and the import slower.
func (c *Client) Ranges(ctx context.Context, tag string, n int64, opts ...BulkOption) iter.Seq2[Range, error] {
	s, err := c.tag(tag)
	if err != nil {
		return failed(err)
	}
	return newBulk(s, n, opts).ranges(ctx)
}

// IDs yields n IDs of tag, as Ranges yields their ranges.
func (c *Client) IDs(ctx context.Context, tag string, n int64, opts ...BulkOption) iter.Seq2[int64, error] {
	return each(c.Ranges(ctx, tag, n, opts...))
}

// SnowflakeRanges yields ranges with n snowflakes in total, as Ranges does for a tag. They are made
// ahead of the loop, so their times are a little before their use.
func (c *Client) SnowflakeRanges(ctx context.Context, n int64, opts ...BulkOption) iter.Seq2[Range, error] {
	return newBulk(c.snowflakes(), n, opts).ranges(ctx)
}

// SnowflakeIDs yields n snowflakes, as SnowflakeRanges yields their ranges.
func (c *Client) SnowflakeIDs(ctx context.Context, n int64, opts ...BulkOption) iter.Seq2[int64, error] {
	return each(c.SnowflakeRanges(ctx, n, opts...))
}

func newBulk(s *source, n int64, opts []BulkOption) bulk {
	b := bulk{from: s, n: n, batch: defaultBatch, parallel: defaultParallel}
	for _, o := range opts {
		o(&b)
	}
	return b
}

// answer is a batch, or the error in its place.
type answer struct {
	ranges  []Range
	missing int64 // IDs, if a batch was too large for one request. Others ask for them
	err     error
}

func (b bulk) ranges(ctx context.Context) iter.Seq2[Range, error] {
	switch {
	case b.n < 1:
		return failed(checkCount(b.n))
	case b.batch < 1:
		return failed(badRequest("Batch is %d: want at least 1", b.batch))
	case b.parallel < 1 || b.parallel > limitParallel:
		return failed(badRequest("Parallel is %d: want 1 to %d", b.parallel, limitParallel))
	}
	return func(yield func(Range, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var requests sync.WaitGroup
		defer requests.Wait()
		defer cancel()
		left := b.n               // not requested yet
		var queue []<-chan answer // in the order of their requests, in which they are used
		fetch := func(most int) {
			for left > 0 && len(queue) < most {
				n := min(b.batch, left)
				left -= n
				reply := make(chan answer, 1)
				queue = append(queue, reply)
				requests.Go(func() {
					ranges, err := b.from.some(ctx, n, request{})
					reply <- answer{ranges, n - idspace.Total(ranges), err}
				})
			}
		}
		most := 1 // at a time: for a strict tag, and until an answer says the order of the tag
		for fetch(most); len(queue) > 0; fetch(most) {
			a := <-queue[0]
			queue = queue[1:]
			left += a.missing
			if a.err == nil && !b.from.strict.Load() {
				most = b.parallel
				fetch(most)
			}
			for _, r := range a.ranges {
				if !yield(r, nil) {
					return
				}
			}
			if a.err != nil {
				yield(Range{}, a.err)
				return
			}
		}
	}
}

// each yields the IDs of ranges.
func each(ranges iter.Seq2[Range, error]) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		for r, err := range ranges {
			if err != nil {
				yield(0, err)
				return
			}
			for id := range r.All() {
				if !yield(id, nil) {
					return
				}
			}
		}
	}
}

// failed yields only an error.
func failed(err error) iter.Seq2[Range, error] {
	return func(yield func(Range, error) bool) { yield(Range{}, err) }
}
