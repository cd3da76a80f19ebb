package gateway

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
)

const (
	// worstTags is how many tags without IDs have metrics.
	worstTags = 5
	// mostStreaks bounds the tags that are remembered, because any caller may ask for any name.
	mostStreaks = 1000
	// streakLasts is how long a tag that nobody asks for any more counts as refused.
	streakLasts = 10 * time.Minute
)

// streaks are the tags of which no request was answered with IDs, and no IDs were reserved, since some were refused. A
// rare tag whose requests are all refused is a small part of all requests, so only an account of its own shows it. The
// zero value is ready. Its methods are safe for concurrent use.
type streaks struct {
	some atomic.Int64 // how many there are, so that a request of a healthy generator needs no lock

	mu   sync.Mutex
	tags map[string]*streak
}

// streak is what is known of one of these tags.
type streak struct {
	refused     int64
	first, last time.Time
}

// served notes that a request for IDs of a tag was answered with IDs, or that some were reserved: they may answer
// requests that come through another generator. Other requests have no tag.
func (s *streaks) served(tag string) {
	if tag != "" && s.some.Load() > 0 {
		s.end(tag)
	}
}

// refused notes that a request for IDs of a tag was refused.
func (s *streaks) refused(tag string, reason bus.Reason, now time.Time) {
	switch reason {
	case bus.BadRequest, bus.BadTag, bus.BatchTooLarge, bus.Draining, generator.Canceled: // these say nothing of the tag
		return
	case bus.UnknownTag, bus.Paused, bus.QuotaExceeded: // an operator's will
		s.served(tag)
		return
	}
	if tag == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.tags[tag]
	if have == nil || now.Sub(have.last) > streakLasts {
		if have == nil && !s.roomLocked(now) {
			return
		}
		have = &streak{first: now}
		s.tags[strings.Clone(tag)] = have // not the whole subject that it is a part of
		s.some.Store(int64(len(s.tags)))
	}
	have.last = now
	have.refused++
}

// end forgets a tag.
func (s *streaks) end(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tags, tag)
	s.some.Store(int64(len(s.tags)))
}

// roomLocked reports whether another tag can be remembered. It forgets those that nobody asks for any more, if there
// are too many.
func (s *streaks) roomLocked(now time.Time) bool {
	if s.tags == nil {
		s.tags = make(map[string]*streak)
	}
	if len(s.tags) >= mostStreaks {
		for tag, t := range s.tags {
			if now.Sub(t.last) > streakLasts {
				delete(s.tags, tag)
			}
		}
	}
	return len(s.tags) < mostStreaks
}

// refusedTag is what the metrics say of a tag.
type refusedTag struct {
	tag     string
	refused int64         // requests since the last one that was answered with IDs
	lasted  time.Duration // from the first of these refusals to the last
}

// worst returns the tags that have been without IDs for longest.
func (s *streaks) worst(now time.Time) (worst []refusedTag) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tag, t := range s.tags {
		if now.Sub(t.last) <= streakLasts {
			worst = append(worst, refusedTag{tag, t.refused, t.last.Sub(t.first)})
		}
	}
	slices.SortFunc(worst, func(x, y refusedTag) int {
		return cmp.Or(cmp.Compare(y.lasted, x.lasted), cmp.Compare(y.refused, x.refused), strings.Compare(x.tag, y.tag))
	})
	return worst[:min(len(worst), worstTags)]
}
