package generator

import "time"

// returnAfter is how long a service must be healthy before it returns to its queue group, if it left soon after it had
// entered. Otherwise a slow disk makes it come and go each second, and each time requests wait.
const returnAfter = 5 * time.Second

// health is whether a service can answer with IDs, and since when. It decides whether the service should be in its
// queue group while a peer can serve.
type health struct {
	unhealthySince time.Time // zero: it is healthy
	healthySince   time.Time // when it last became healthy
	entered        time.Time // when it last entered the queue group, healthy
	flaps          bool      // it left less than returnAfter after that, and has not entered since
}

// note notes whether the service is healthy, and reports whether that has changed.
func (h *health) note(now time.Time, healthy bool) (changed bool) {
	if healthy == h.unhealthySince.IsZero() {
		return false
	}
	h.unhealthySince, h.healthySince = time.Time{}, now
	if !healthy {
		h.unhealthySince = now
	}
	return true
}

func (h *health) enter(now time.Time) {
	h.flaps = false
	if h.unhealthySince.IsZero() { // otherwise it enters only because no peer can serve
		h.entered = now
	}
}

func (h *health) leave(now time.Time) { h.flaps = now.Sub(h.entered) < returnAfter }

// bad reports whether the service should leave its queue group, or stay out, if a peer has reported later than since
// that it can serve.
func (h *health) bad(now time.Time) (since time.Time, bad bool) {
	unhealthy := !h.unhealthySince.IsZero()
	if h.flaps { // it is out
		return time.Time{}, unhealthy || now.Sub(h.healthySince) < returnAfter
	}
	return h.unhealthySince, unhealthy
}
