package generator

import (
	"cmp"
	"time"
)

const (
	// leaveAfter is how long a service must be unable to answer until it leaves its queue group.
	leaveAfter = 100 * time.Millisecond
	// returnAfter is how long it must then be able to answer until it returns. Otherwise a slow
	// disk makes it come and go each second, and each time requests wait.
	returnAfter = 5 * time.Second
)

// health decides whether a service should be in its queue group while a peer can serve. It belongs
// to Generator.Run.
type health struct {
	able  bool      // it can answer with IDs
	since time.Time // when able last changed
	left  bool      // it left, and has not entered since
}

// note notes whether the service can answer, and reports whether that has changed.
func (h *health) note(now time.Time, able bool) (changed bool) {
	if able == h.able {
		return false
	}
	h.able, h.since = able, now
	return true
}

// bad reports whether the service should leave its queue group, or stay out, if a peer has reported
// later than since that it can serve.
func (h *health) bad(now time.Time) (since time.Time, bad bool) {
	lasts := now.Sub(h.since)
	if h.left {
		return time.Time{}, !h.able || lasts < returnAfter
	}
	return h.since, !h.able && lasts >= leaveAfter
}

// able says why the service must not be asked; nil: it may be.
func (s *service) able() error {
	if s.moving() {
		return errMoving
	}
	return cmp.Or(s.subscriptions.err(), s.healthy())
}

// canServe reports whether the service can answer with IDs.
func (s *service) canServe() bool { return !s.phase.draining.Load() && s.able() == nil }

// stepAside leaves or enters the queue group, as this generator and its peers can serve.
//
// It leaves only if a peer has reported that it can serve, later than this generator became unable
// to. If two become unable at the same time, both stay.
func (s *service) stepAside(now time.Time) error {
	why := s.able()
	changed := s.health.note(now, why == nil)
	if changed && why != nil {
		time.AfterFunc(leaveAfter, func() { signal(s.group.look) })
	}
	since, bad := s.health.bad(now)
	aside := bad && s.group.anyPeer(now, since, s.offers)
	var err error
	switch {
	case aside && s.discovery != nil && s.link.hears():
		s.cfg.Log.Warn("leaving the queue group, because another generator can serve", "service", s.name, "reason", why)
		s.health.left = true
		s.close()
	case !aside && s.discovery == nil:
		err = s.open()
		s.health.left = false
		if err == nil && s.phase.serving.Load() {
			s.cfg.Log.Info("entered the queue group", "service", s.name)
		}
	}
	if s.aside.Swap(aside) != aside || changed {
		s.heartbeats.now() // a peer that stops waits for it, so it comes after the subscriptions
	}
	return err
}
