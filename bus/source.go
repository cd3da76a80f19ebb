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

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

// growAfter is after how long a source asks for larger batches again, if they were too large.
const growAfter = 10 * time.Second

// source is where IDs come from: a tag, or the snowflakes.
type source struct {
	c       *Client
	subject string
	limit   atomic.Pointer[limit] // nil: no request was too large
	strict  atomic.Bool           // an answer said that the tag is strict
	why     atomic.Pointer[error] // why the last attempt failed
}

// limit is how many IDs a request is for at most, after a request for more was refused at a time.
type limit struct {
	most int64
	at   time.Time
}

// some returns n IDs, or fewer if n are too many for one request. It retries as [Client.Take] does.
// r has what the request is beyond its subject and count.
func (s *source) some(ctx context.Context, n int64, r request) (ranges []Range, err error) {
	r.failed = &s.why
	for {
		if l := s.limit.Load(); l != nil && n > l.most {
			if now := time.Now(); now.Sub(l.at) > growAfter { // the generators may have another limit now
				l = &limit{2 * l.most, now}
				s.limit.Store(l)
			}
			n = min(n, l.most)
		}
		ranges, err = s.take(ctx, n, r)
		switch {
		case n > 1 && errors.Is(err, BatchTooLarge):
			s.limit.Store(&limit{(n + 1) / 2, time.Now()})
		case n > 1 && errors.Is(err, QuotaExceeded): // there may be IDs for some of the callers
			n = (n + 1) / 2
		default:
			return ranges, err
		}
	}
}

// take returns n IDs from one request.
func (s *source) take(ctx context.Context, n int64, r request) ([]Range, error) {
	r.subject, r.count, r.body = s.subject, n, strconv.AppendInt(nil, n, 10)
	msg, err := s.c.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	if s.why.Load() != nil {
		s.why.Store(nil)
	}
	ranges, err := s.read(msg)
	if got := idspace.Total(ranges); err == nil && got != n {
		return nil, fmt.Errorf("the reply has %d IDs, the request was for %d", got, n)
	}
	return ranges, err
}

// read returns the IDs of an answer, and notes the order of the tag.
func (s *source) read(msg *nats.Msg) ([]Range, error) {
	if msg.Header.Get(wire.HeaderOrder) == idspace.OrderStrict {
		s.strict.Store(true)
	}
	ranges, err := wire.ParseReply(msg.Data)
	if err == nil && overlap(ranges) {
		return nil, fmt.Errorf("the reply has an ID twice: %s", idspace.Quote(msg.Data))
	}
	return ranges, err
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
	why := wire.Silent(s.subject)
	if last := s.why.Load(); last != nil {
		why = *last
	}
	return s.c.x.gaveUp(ctx, why)
}
