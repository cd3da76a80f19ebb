package gateway

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
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

// Writes in quick succession share a deadline. It is never later than the one that was asked for, and sooner
// by the slack at most.
func TestDeadlinesOfWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := &keeping{}
		c := newLazyConn(kept, time.Second)
		for i := range 100 { // 10 ms from one to the next
			for _, want := range []time.Time{time.Now().Add(time.Minute), {}} { // as net/http sets them, and removes them
				if err := c.SetWriteDeadline(want); err != nil {
					t.Fatal(err)
				}
				if want.IsZero() {
					continue
				}
				if _, err := c.Write(nil); err != nil {
					t.Fatal(err)
				}
				if early := want.Sub(kept.write); early < 0 || early > time.Second {
					t.Fatalf("write %d has its deadline %v early", i, early)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := kept.writes.Load(); n != 1 {
			t.Errorf("%d deadlines for a second of writes", n)
		}
		for _, want := range []time.Time{{}, time.Now().Add(time.Minute), time.Now().Add(time.Minute - time.Millisecond), {}} {
			if err := c.SetWriteDeadline(want); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write(nil); err != nil || !kept.write.Equal(want) {
				t.Errorf("%v; the deadline is %v, want %v", err, kept.write, want)
			}
		}
	})
}

// keeping is a connection that keeps and counts the deadlines that are set.
type keeping struct {
	net.Conn
	write         time.Time
	reads, writes atomic.Int64
}

func (c *keeping) Write(p []byte) (int, error) {
	if c.Conn == nil {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *keeping) SetWriteDeadline(t time.Time) error {
	c.write = t
	c.writes.Add(1)
	if c.Conn == nil {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

func (c *keeping) SetReadDeadline(t time.Time) error {
	c.reads.Add(1)
	return c.Conn.SetReadDeadline(t)
}

// keepingListener accepts one connection, which it keeps.
type keepingListener struct {
	net.Listener
	accepted chan *keeping
}

func (l keepingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	k := &keeping{Conn: c}
	l.accepted <- k
	return k, nil
}

// A request of many on a connection costs three deadlines, and not the nine that net/http sets. The three are those of
// the wait for the request, of the watch on the caller while the answer is made, and of the end of that.
func TestDeadlinesOfARequest(t *testing.T) {
	t.Parallel()
	l := keepingListener{listen(t), make(chan *keeping, 1)}
	url, _ := run(t, serve(t, &fakeGenerator{initialised: true}, func(c *Config) { c.Listener = l }))
	c := dial(t, url)
	kept := <-l.accepted
	const requests = 50
	for range requests {
		if status, _ := ask(t, c, oneID); status != 200 {
			t.Fatal(status)
		}
	}
	if reads, writes := kept.reads.Load(), kept.writes.Load(); reads > 3*requests+3 || writes > requests/2 {
		t.Errorf("%d requests set %d deadlines of reads and %d of writes", requests, reads, writes)
	}
}
