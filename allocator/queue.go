package allocator

// queue is the requests that wait for a tag, first come first. The zero value
// is empty. Unlike a [container/list.List] it costs a tag for which nobody
// waits next to nothing.
type queue struct {
	first, last *Waiter
	n           int
}

// push adds a waiter at the end.
func (q *queue) push(w *Waiter) {
	w.queued, w.before = true, q.last
	if q.last == nil {
		q.first = w
	} else {
		q.last.after = w
	}
	q.last = w
	q.n++
}

// remove takes a waiter out, from wherever it is.
func (q *queue) remove(w *Waiter) {
	if w.before == nil {
		q.first = w.after
	} else {
		w.before.after = w.after
	}
	if w.after == nil {
		q.last = w.before
	} else {
		w.after.before = w.before
	}
	w.queued, w.before, w.after = false, nil, nil
	q.n--
}
