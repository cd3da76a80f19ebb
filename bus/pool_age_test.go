package bus

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What became too old is not handed out.
func TestPoolMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Millisecond}
		p := s.pool(t, Ahead(10, 1000), MaxAge(time.Second))
		defer p.Close()
		wait(t, p, 1)
		time.Sleep(time.Second - time.Millisecond) // since it was asked for
		take(t, p, 1)
		time.Sleep(time.Nanosecond)
		id, err := p.Next(t.Context())
		if err != nil || id <= 10 {
			t.Errorf("%d, %v: of those that were asked for more than a second ago", id, err)
		}
	})
}

// Where callers come so seldom that IDs become too old, it keeps fewer and fewer.
func TestPoolKeepsLessWhereIDsBecomeTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Millisecond}
		p := s.pool(t, Ahead(10, 1000), MaxAge(time.Second))
		defer p.Close()
		wait(t, p, 1)
		for range 10 { // with much to do
			wait(t, p, 500)
			time.Sleep(time.Millisecond)
		}
		before := distanceOf(p)
		if before < 100 {
			t.Fatalf("it keeps %d", before)
		}
		for range 12 {
			time.Sleep(time.Minute)
			s.requests()
			wait(t, p, 1)
			if now := distanceOf(p); now != max(before/2, 10) {
				t.Errorf("a minute later it keeps %d, before %d", now, before)
			}
			before = distanceOf(p)
			if n := len(s.requests()); n != 1 {
				t.Errorf("%d requests for one caller", n)
			}
			take(t, p, 3)
		}
	})
}

// Callers that come together after a pause are served together, and do not make
// it keep more: they wait because time has passed, not because it kept little.
func TestPoolAfterPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: time.Millisecond}
		p := s.pool(t, Ahead(100, 1000), MaxAge(time.Second))
		defer p.Close()
		for range 5 {
			wait(t, p, 1)
			take(t, p, 1)
			time.Sleep(time.Minute) // what it has becomes too old
			s.requests()
			var callers sync.WaitGroup
			for range 40 {
				callers.Go(func() {
					if _, err := p.Next(t.Context()); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait() // one comes after the other
			}
			callers.Wait()
			synctest.Wait()
			if got := s.requests(); !slices.Equal(got, []int64{100}) || distanceOf(p) != 100 {
				t.Errorf("for 40 callers it asked for %d and keeps %d; want 100, once, and 100", got, distanceOf(p))
			}
			time.Sleep(time.Minute)
		}
	})
}

// Where answers take longer than IDs may be old, those who wait for them get theirs.
func TestPoolSlowerThanMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &poolSource{delay: 1200 * time.Millisecond}
		p := s.pool(t, Ahead(100, 1000), MaxAge(time.Second))
		defer p.Close()
		for range 3 {
			began := time.Now()
			if _, err := p.Next(t.Context()); err != nil || time.Since(began) != s.delay {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
	})
}
