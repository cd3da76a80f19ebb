package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// source is where IDs come from: a tag, or the snowflakes.
type source struct {
	c       *Client
	subject string
	most    atomic.Int64          // a request for more was refused; 0: unknown
	strict  atomic.Bool           // an answer said that the tag is strict
	why     atomic.Pointer[error] // why the last attempt failed
	quota   atomic.Pointer[error] // why the last request was divided; nil: it was not
}

// some returns n IDs, or fewer if n are too many for one request. It retries as [Client.Take] does. terms are what the
// request has beyond its subject and count.
func (s *source) some(ctx context.Context, n int64, terms request) (ranges []Range, asked time.Time, err error) {
	terms.failed = &s.why
	for divided := false; ; {
		if most := s.most.Load(); most > 0 {
			n = min(n, most)
		}
		ranges, asked, err = s.take(ctx, n, terms)
		switch quota := s.quota.Load(); {
		case n > 1 && errors.Is(err, BatchTooLarge):
			s.most.Store((n + 1) / 2)
			continue
		case n > 1 && errors.Is(err, QuotaExceeded): // there may be IDs for some of the callers
			refusal := err
			s.quota.Store(&refusal)
			n, divided = (n+1)/2, true
			continue
		case quota != nil && err == nil && !divided:
			s.quota.Store(nil)
		case quota != nil && timedOut(err): // the quota made the requests so many
			err = wire.GaveUp(ctx, *quota)
		}
		return ranges, asked, err
	}
}

// take returns n IDs from one request, and when that was sent.
func (s *source) take(ctx context.Context, n int64, terms request) (ranges []Range, asked time.Time, err error) {
	terms.subject, terms.count, terms.lateness = s.subject, n, s.c.hedging.lateness(s.subject, n)
	msg, asked, err := s.c.ask(ctx, terms)
	if err != nil {
		return nil, asked, err
	}
	if s.why.Load() != nil {
		s.why.Store(nil)
	}
	ranges, err = s.read(msg)
	if got := total(ranges); err == nil && got != n {
		return nil, asked, fmt.Errorf("the reply has %d IDs, the request was for %d", got, n)
	}
	return ranges, asked, err
}

// read returns the IDs of an answer, and notes the order of the tag.
func (s *source) read(msg *nats.Msg) ([]Range, error) {
	if msg.Header.Get(HeaderOrder) == OrderStrict {
		s.strict.Store(true)
	}
	ranges, err := ParseReply(msg.Data)
	if err == nil && overlap(ranges) {
		return nil, fmt.Errorf("the reply has an ID twice: %s", wire.Quote(msg.Data))
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
	if why := s.why.Load(); why != nil {
		return wire.GaveUp(ctx, *why)
	}
	return wire.GaveUp(ctx, fmt.Errorf("no answer on %s in time", s.subject))
}
