package allocator

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
)

// ruled is what a buffer has if an operator has set rules for its tag. The buffer's lock guards it.
type ruled struct {
	Rules
	tokens float64   // IDs that this generator's share of the quota allows now; negative after a large batch
	at     time.Time // when that was
}

// QuotaError is an [ErrQuota] that says when to ask again.
type QuotaError struct {
	Quota      idspace.Quota
	RetryAfter time.Duration
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("%v: %d IDs a second, shared by all generators", ErrQuota, e.Quota.PerSecond)
}

// Unwrap makes the error match ErrQuota.
func (e *QuotaError) Unwrap() error { return ErrQuota }

// quotas applies the rules of operators to buffers. The lock of a buffer guards what it keeps
// there.
type quotas struct {
	alarms  *alarms
	sharers atomic.Int64 // generators that share quotas, this one included
}

func newQuotas(al *alarms) *quotas {
	q := &quotas{alarms: al}
	q.sharers.Store(1)
	return q
}

// Share makes quotas be shared by this many generators: each allows an equal part of the rate and
// of the burst. Until it is called this generator has all.
func (a *quotas) Share(generators int) { a.sharers.Store(int64(max(generators, 1))) }

// governLocked applies the rules of a tag. Rules of an older version than those in force change
// nothing. Rules of the same version count if they are those of the current record: after a restore
// of the store a version may have been given twice. When it returns, they are in force for all
// requests that come from then on. Requests that wait are refused if the tag is paused, and those
// for which a new quota has no IDs.
func (a *quotas) governLocked(b *buffer, r Rules, current bool) {
	old := b.rulesLocked()
	if r == old || r.Version < old.Version || r.Version == old.Version && !current {
		return
	}
	if b.rules == nil {
		b.rules = new(ruled)
	}
	b.rules.Rules = r
	b.exhausted = false // the limit by which it was may never have been in memory
	if r.Limit != old.Limit {
		b.trimLocked()
	}
	switch {
	case r.Paused:
		b.refuseLocked(ErrPaused)
		b.wakeLocked() // a refill that pauses ends now
	case old.Quota.PerSecond == 0 && r.Quota.PerSecond > 0:
		a.admitWaitersLocked(b)
	}
	a.alarms.recountLocked(b)
}

// admitWaitersLocked takes the IDs of the requests that wait from a new quota, and refuses those
// for which it has too few. When a tag is loaded, requests came before its quota was known.
func (a *quotas) admitWaitersLocked(b *buffer) {
	now, sharers := time.Now(), a.sharers.Load()
	b.rules.fill(now, sharers)
	for w := range b.waiters.all() {
		if !w.fromPeer {
			err := b.rules.allow(now, w.n, sharers)
			b.chargeLocked(w.n)
			if err != nil {
				b.settleLocked(w, nil, err) // which gives the IDs back
			}
		}
	}
}

// rulesLocked returns the rules that are known.
func (b *buffer) rulesLocked() Rules {
	if b.rules == nil {
		return Rules{}
	}
	return b.rules.Rules
}

// admitLocked is the error of a request for n IDs that the rules refuse now.
func (a *quotas) admitLocked(b *buffer, n int64) error {
	switch r := b.rules; {
	case r == nil:
		return nil
	case r.Paused:
		return ErrPaused
	case r.Quota.PerSecond > 0:
		return r.allow(time.Now(), n, a.sharers.Load())
	default:
		return nil
	}
}

// chargeLocked takes n IDs from the quota, after admitLocked has allowed them.
func (b *buffer) chargeLocked(n int64) {
	if b.rules != nil {
		b.rules.tokens -= float64(n)
	}
}

// Borrowed takes n IDs of a strict tag from its quota, which a caller got from another generator
// and no request in the queue stands for. The other generator has taken the IDs of any other tag
// from its own share.
func (a *Allocator) Borrowed(tag string, n int64) {
	if a.Order(tag) != Strict {
		return
	}
	if b := a.lockedBuffer(tag); b != nil {
		b.chargeLocked(n)
		b.mu.Unlock()
	}
}

// dust is less than an ID, and more than the sums of tokens lose by rounding.
const dust = 1e-6

// mostRetryMS bounds the hint of a [QuotaError], so that it fits into a time.Duration: 10 years.
const mostRetryMS = 10 * 365 * 24 * 3600 * 1000

// fill makes the share of the quota full.
func (r *ruled) fill(now time.Time, sharers int64) {
	r.tokens, r.at = float64(r.Quota.Burst)/float64(sharers), now
}

// allow is the error if the share of the quota does not allow n IDs. A request that is larger than
// the whole share waits until the share is full, and the requests after it wait for what it took.
// Otherwise it could never be answered.
func (r *ruled) allow(now time.Time, n, sharers int64) error {
	if n > r.Quota.Burst {
		return fmt.Errorf("%w: the tag's quota allows at most %d IDs at once", ErrBatchTooLarge, r.Quota.Burst)
	}
	rate, most := float64(r.Quota.PerSecond)/float64(sharers), float64(r.Quota.Burst)/float64(sharers)
	r.tokens = min(r.tokens+rate*max(now.Sub(r.at), 0).Seconds(), most)
	r.at = now
	lacks := min(float64(n), most) - r.tokens
	if lacks < dust {
		return nil
	}
	ms := math.Ceil((lacks - dust) / rate * 1000) // the wire's unit
	return &QuotaError{r.Quota, time.Duration(min(max(ms, 1), mostRetryMS)) * time.Millisecond}
}
