package gateway

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A read or write ends at the deadline, whether that was set before the call or during it.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	const never = 100 * time.Hour
	for name, test := range map[string]struct {
		before []time.Duration // that are set before the call, from now; never: no deadline
		during time.Duration   // that is set 5 s after the call began, from then; 0: none
		ends   time.Duration   // after this the call ends
	}{
		"set before":               {[]time.Duration{time.Minute}, 0, time.Minute},
		"the last one counts":      {[]time.Duration{time.Minute, never, time.Hour, 10 * time.Second}, 0, 10 * time.Second},
		"a later one":              {[]time.Duration{10 * time.Second, time.Minute}, 0, time.Minute},
		"in the past":              {[]time.Duration{-time.Hour}, 0, 0},
		"set during the call":      {nil, time.Minute, time.Minute + 5*time.Second},
		"sooner during the call":   {[]time.Duration{time.Hour}, time.Second, 6 * time.Second},
		"later during the call":    {[]time.Duration{time.Minute}, time.Hour, time.Hour + 5*time.Second},
		"ended by one in the past": {[]time.Duration{time.Hour}, -time.Hour, 5 * time.Second},
		"removed during the call":  {[]time.Duration{time.Minute}, never, never}, // what is sent then ends it
	} {
		for _, reading := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					peer, conn := net.Pipe()
					defer peer.Close()
					c := newLazyConn(conn, time.Second)
					defer c.Close()
					set, call, other := c.SetReadDeadline, c.Read, peer.Write
					if !reading {
						set, call, other = c.SetWriteDeadline, c.Write, peer.Read
					}
					at := func(d time.Duration) time.Time {
						if d == never {
							return time.Time{}
						}
						return time.Now().Add(d)
					}
					for _, d := range test.before {
						if err := set(at(d)); err != nil {
							t.Fatal(err)
						}
					}
					begun := time.Now()
					if test.during != 0 {
						defer time.AfterFunc(5*time.Second, func() { _ = c.SetDeadline(at(test.during)) }).Stop()
					}
					defer time.AfterFunc(never, func() { _, _ = other(make([]byte, 1)) }).Stop()
					_, err := call(make([]byte, 1))
					if late := errors.Is(err, os.ErrDeadlineExceeded); late != (test.ends != never) || time.Since(begun) != test.ends {
						t.Errorf("reading %t: %v after %v, want the end after %v", reading, err, time.Since(begun), test.ends)
					}
				})
			})
		}
	}
}
