package audit

import (
	"fmt"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// tenure is a stretch of time for which one generator holds a worker: it may issue IDs with times from the field from
// on, and before until. Times are Unix ms.
type tenure struct {
	node        string
	source      string    // where this is written, for people; empty: only in the registry
	at, last    time.Time // when the generator took the worker, and when it was last started with it
	from, until int64
	after       int64 // the last report in the record that the generator replaced; 0: not known, or there was no record
	over        bool  // the generator does not move until ahead any more
	exact       bool  // until is certain. Otherwise it was reserved once, and the event that lowered it may be missing
}

// start is when the generator can have begun to issue, unless its clock was set back since it took the worker.
func (t tenure) start() int64 { return max(t.from, t.at.UnixMilli()) }

func (t tenure) String() string {
	return fmt.Sprintf("%s may issue from %s until %s (%s)", t.node, moment(t.start()), moment(t.until), t.source)
}

// contradicts reports whether both generators may issue the same time. A generator that replaced the record of the
// other one, or a later record, took the worker where that one ended.
func (t tenure) contradicts(o tenure) bool {
	replaced := func(x, y tenure) bool { return !x.exact && y.after >= x.last.UnixMilli() }
	return max(t.start(), o.start()) < min(t.until, o.until) && !replaced(t, o) && !replaced(o, t)
}

// moment is a Unix time in ms, for people.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format(snowflake.TimeFormat) }
