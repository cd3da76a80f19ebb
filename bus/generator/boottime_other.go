//go:build !linux

package generator

import "time"

// bootTime is the wall clock: it shows that the machine slept. A clock that is set forward shows
// the same.
func bootTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
