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

// source is what IDs are taken from, a tag or the snowflakes.
type source struct {
	c       *Client
	subject string
	most    atomic.Int64          // more was refused in one request; 0: not known
	why     atomic.Pointer[error] // the last attempt failed
}

// some returns n IDs, or fewer where n are too many for one request. What another attempt may cure is tried again until the context is done.
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

// take returns n IDs, all from one request, and when that was sent.
func (s *source) take(ctx context.Context, n int64) (ranges []Range, asked time.Time, err error) {
	limit := s.c.first
	if n > fewIDs {
		limit = max(limit, lastAttempt)
	}
	msg, asked, err := s.c.request(ctx, limit, s.subject, strconv.AppendInt(nil, n, 10), func(err error) { s.why.Store(&err) })
	if err != nil {
		return nil, asked, err
	}
	s.why.Store(nil)
	ranges, err = ParseReply(msg.Data)
	switch got := total(ranges); {
	case err != nil:
		return nil, asked, err
	case got != n:
		return nil, asked, fmt.Errorf("%d IDs came for %d asked for", got, n)
	case overlap(ranges):
		return nil, asked, fmt.Errorf("a reply that has an ID twice: %s", wire.Quote(msg.Data))
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

// gaveUp is the error of whoever does not wait any longer: it matches that of
// the context, and says why there were no IDs in time.
func (s *source) gaveUp(ctx context.Context) error {
	if why := s.why.Load(); why != nil {
		return gaveUp(ctx, *why)
	}
	return gaveUp(ctx, fmt.Errorf("no answer on %s in time", s.subject))
}
