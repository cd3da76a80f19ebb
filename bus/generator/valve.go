package generator

import (
	"math"
	"time"
)

const (
	// waitAtMost is how long a request should wait at most before the generator reads it: less than
	// the 500 ms that the most impatient callers wait.
	waitAtMost = 150 * time.Millisecond
	// measureFor is how long requests must have waited without a break until their number in that
	// time is a rate.
	measureFor = 100 * time.Millisecond
	// leastLimit requests may always wait. If they wait long the machine is slow, and would not be
	// faster without them.
	leastLimit = 500
	// calm is how long the valve must not close before an overload is over.
	calm = 5 * time.Second
)

// valve decides when a service takes requests from NATS, if more come than it can answer. It is
// shut while too many wait. Then NATS gives requests to other generators, and refuses them at once
// if there is none ("no responders").
//
// How many may wait follows from the rate at which the service reads them. That is known only while
// some wait all the time. The service cannot refuse requests itself, because to read one costs
// about as much as to answer it.
//
// It is not safe for concurrent use. The zero value is an open valve that has measured nothing.
type valve struct {
	shut  bool
	limit int       // requests that may wait, by the last rate; 0: none was measured
	at    time.Time // when it last closed; zero: there is no overload

	begun   time.Time // of the measurement
	read    int       // requests since
	emptied bool      // no request waited at a moment since
}

// verdict is what a look at a valve finds.
type verdict int

const (
	valveStays verdict = iota
	valveShuts         // take no more requests
	valveOpens         // take requests again
	overloadEnds
)

// served notes that a request was read, and how many wait now.
func (v *valve) served(waiting int) {
	v.read++
	v.emptied = v.emptied || waiting == 0
}

// look returns what to do now, with so many requests that wait.
func (v *valve) look(now time.Time, waiting int) verdict {
	v.measure(now, waiting)
	switch {
	case v.shut && waiting < v.limit/2:
		v.shut = false
		return valveOpens
	case v.shut:
	case v.limit > 0 && waiting > v.limit:
		v.shut, v.at = true, now
		return valveShuts
	case !v.at.IsZero() && now.Sub(v.at) > calm:
		v.at = time.Time{}
		return overloadEnds
	}
	return valveStays
}

// measure measures the rate. Outside of an overload it is forgotten when no request waits, because
// it may change.
func (v *valve) measure(now time.Time, waiting int) {
	took := now.Sub(v.begun)
	switch {
	case v.emptied || waiting == 0 || v.begun.IsZero():
		if v.at.IsZero() {
			v.limit = 0
		}
	case took < measureFor:
		return
	default:
		limit := max(int(math.Round(float64(v.read)*waitAtMost.Seconds()/took.Seconds())), leastLimit)
		v.limit = max(limit, (v.limit+limit)/2) // one pause of the process should not count much
	}
	v.begun, v.read, v.emptied = now, 0, waiting == 0
}
