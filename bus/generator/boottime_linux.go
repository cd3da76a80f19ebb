package generator

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is how long ago the machine was started. Unlike Go's monotonic clock it counts the time
// in which the machine slept, and unlike the wall clock nothing sets it.
func bootTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0 // then the monotonic clock must do
	}
	return time.Duration(t.Nano())
}
