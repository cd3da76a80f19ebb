package generator

import "time"

const (
	// leaveAfter is how long a service must be unable to answer until it leaves its queue group.
	leaveAfter = 100 * time.Millisecond
	// returnAfter is how long it must then be able to answer until it returns. Otherwise a slow disk makes it come and
	// go each second, and each time requests wait.
	returnAfter = 5 * time.Second
)

// health decides whether a service should be in its queue group while a peer can serve. It belongs to Generator.Run.
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

// bad reports whether the service should leave its queue group, or stay out, if a peer has reported later than since
// that it can serve.
func (h *health) bad(now time.Time) (since time.Time, bad bool) {
	lasts := now.Sub(h.since)
	if h.left {
		return time.Time{}, !h.able || lasts < returnAfter
	}
	return h.since, !h.able && lasts >= leaveAfter
}
