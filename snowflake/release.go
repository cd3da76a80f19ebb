package snowflake

import (
	"crypto/rand"
	"time"
)

// ReleaseMargin is how far the clock of a released worker's owner may have been
// ahead.
const ReleaseMargin = 10 * time.Second

// Release returns the record that gives the worker of e free soon, because an
// operator says that its owner is stopped: to be put in the place of e. now is the
// time of whoever writes it, in Unix ms.
//
// The incarnation is a new one, so that the owner, when it comes back, finds
// nothing of its own and takes another worker. The reservation ends ReleaseMargin
// after now, or after what the owner's clock was last known to say if that is later;
// it is never moved on. What earlier owners issued lies before Acquired, so
// before that end.
//
// Other than a reservation that its holder lowers, this rests on what no record
// tells, and the operator must:
//   - The owner is stopped, and stays so: its data folder is not started again
//     before e.ReservedUntil while the registry cannot be reached, for it would go
//     on from the file alone.
//   - While it held the worker its clock was never ahead of the later of now and
//     its last report by more than ReleaseMargin: all that it issued lies before the
//     new end.
func Release(e Entry, now int64) Record {
	r := e.Record
	r.Incarnation = rand.Text()
	margin := ReleaseMargin.Milliseconds()
	r.ReservedUntil = min(r.ReservedUntil-margin, max(now, r.Reported, r.Acquired)) + margin // this way nothing overflows
	return r
}
