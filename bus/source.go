package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// source is where IDs come from: a tag, or the snowflakes.
type source struct {
	c       *Client
	subject string
	most    atomic.Int64          // a request for more was refused; 0: unknown
	why     atomic.Pointer[error] // why the last attempt failed
}

// some returns n IDs, or fewer if n are too many for one request. It retries as [Client.Take] does.
func (s *source) some(ctx context.Context, n int64) (ranges []Range, asked time.Time, err error) {
	for {
		if most := s.most.Load(); most > 0 {
			n = min(n, most)
		}
		ranges, asked, err = s.take(ctx, n)
		if n == 1 || !errors.Is(err, BatchTooLarge) {
			return ranges, asked, err
		}
		s.most.Store((n + 1) / 2)
	}
}

// take returns n IDs from one request, and when that was sent.
func (s *source) take(ctx context.Context, n int64) (ranges []Range, asked time.Time, err error) {
	limit := s.c.first
	if n > fewIDs {
		limit = max(limit, lastAttempt)
	}
	failed := func(err error) { s.why.Store(&err) }
	msg, asked, err := s.c.request(ctx, limit, s.subject, strconv.AppendInt(nil, n, 10), failed)
	if err != nil {
		return nil, asked, err
	}
	s.why.Store(nil)
	ranges, err = ParseReply(msg.Data)
	switch got := total(ranges); {
	case err != nil:
		return nil, asked, err
	case got != n:
		return nil, asked, fmt.Errorf("the reply has %d IDs, the request was for %d", got, n)
	case overlap(ranges):
		return nil, asked, fmt.Errorf("the reply has an ID twice: %s", wire.Quote(msg.Data))
	}
	return ranges, asked, nil
}

// overlap reports whether an ID is in two of the ranges.
func overlap(ranges []Range) bool {
	byFirst := func(x, y Range) int { return cmp.Compare(x.First, y.First) }
	if !slices.IsSortedFunc(ranges, byFirst) {
		ranges = slices.SortedFunc(slices.Values(ranges), byFirst)
	}
	for i := range len(ranges) - 1 {
		if ranges[i+1].First <= ranges[i].Last {
			return true
		}
	}
	return false
}

// gaveUp returns the error of a caller that the context ended: it matches the context's error, and
// says why there were no IDs in time.
func (s *source) gaveUp(ctx context.Context) error {
	if why := s.why.Load(); why != nil {
		return gaveUp(ctx, *why)
	}
	return gaveUp(ctx, fmt.Errorf("no answer on %s in time", s.subject))
}
