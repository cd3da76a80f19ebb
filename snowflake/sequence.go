package snowflake

const (
	// maxLag is how far behind the clock, in ms, a worker under full load may
	// be: what time was not used while the process was not running is used up
	// after it, so that the layout's ceiling is reached in spite of the scheduler.
	maxLag = 50
	// spread is the part of the sequence numbers that an idle millisecond may
	// begin at: 0 to 127 of 4,096.
	spread = 32
	// share is the part of the current millisecond that is kept from large
	// requests.
	share = 4
)

// sequence numbers IDs within milliseconds. It only increases.
type sequence struct {
	size   int64               // IDs in a millisecond
	random func(n int64) int64 // in [0, n)
	ms     int64               // of the last ID, Unix ms
	next   int64               // sequence number; size: none left
	// packed: the millisecond is filled before the next is entered. It was entered
	// because the one before was full, or requests wait for what is left of it.
	packed bool
}

// enter moves to the millisecond in which IDs are to be issued at the time t.
// The sequence begins at 0 in one that is entered because the last was full, and else at
// random, so that low traffic spreads over the shards of id % n.
func (s *sequence) enter(t int64) {
	lag := t - s.ms
	switch {
	case lag <= 0, lag <= maxLag && s.packed && s.next < s.size:
	case lag <= maxLag && s.next == s.size:
		s.ms, s.next, s.packed = s.ms+1, 0, true
	default:
		s.ms, s.next, s.packed = t, s.random(max(1, s.size/spread)), false
	}
}

// skip leaves all up to the millisecond ms unused.
func (s *sequence) skip(ms int64) {
	if ms >= s.ms {
		s.ms, s.next, s.packed = ms, s.size, false
	}
}

// room is how many IDs a request may take now, at the time t. Of the current
// millisecond a large one leaves some for small ones; of those that have passed
// it may take all.
func (s *sequence) room(t int64, large bool) int64 {
	if large && s.ms == t {
		return max(0, s.size-s.size/share-s.next)
	}
	return s.size - s.next
}
