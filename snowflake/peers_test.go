package snowflake_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// later are peers that are not there yet when the test begins.
func (w *world) later(peers func(context.Context) []time.Duration) func(context.Context) []time.Duration {
	return func(ctx context.Context) []time.Duration {
		if w.clock.right() == origin {
			return nil
		}
		return peers(ctx)
	}
}

// TestPeersThatDoNotAnswer: while nobody answers, doubt goes on, and so do the
// IDs.
func TestPeersThatDoNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		asked := 0
		n := w.start(func(s *setup) {
			s.PeerClocks = w.later(func(ctx context.Context) []time.Duration {
				asked++
				<-ctx.Done()
				return nil
			})
		})
		time.Sleep(time.Minute)
		n.wantEvents("acquired 0")
		for range 10 {
			w.act(n, act{after: 20 * time.Second, set: time.Hour})
		}
		synctest.Wait()
		if asked != 1 {
			t.Errorf("the peers were asked %d times at a time", asked)
		}
	})
}

// TestSetWhilePeersAreAsked: peers that agree with a clock do not agree with
// what it is set to before they have answered.
func TestSetWhilePeersAreAsked(t *testing.T) {
	const in2055 = 29 * 365 * 24 * time.Hour
	for name, sets := range map[string][]time.Duration{
		"further ahead":                 {in2055},
		"back, seen, and further ahead": {-time.Hour, in2055},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start(func(s *setup) {
					s.PeerClocks = w.later(func(context.Context) []time.Duration {
						agree := time.Hour - time.Duration(w.clock.read().Wall-w.clock.right())*ms
						time.Sleep(time.Second)
						return []time.Duration{agree}
					})
				})
				w.act(n, act{after: time.Minute + ms, set: time.Hour, events: []string{"acquired 0"}})
				time.Sleep(600 * ms)
				for _, set := range sets {
					w.act(n, act{after: 100 * ms, set: set})
				}
				w.act(n, act{after: 500 * ms}) // that was their answer
				w.act(n, act{after: time.Minute, events: []string{"skewed"}})
			})
		})
	}
}

// TestPeersVanish: peers that did not agree, and then are not heard of, have
// not agreed; nor has nobody, before that has lasted.
func TestPeersVanish(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var vanished atomic.Bool
		n := w.start(func(s *setup) {
			s.PeerClocks = w.later(func(context.Context) []time.Duration {
				if vanished.Load() {
					return nil
				}
				return []time.Duration{-time.Hour}
			})
		})
		w.act(n, act{after: time.Minute + ms, set: time.Hour, events: []string{"acquired 0"}})
		w.act(n, act{after: 30 * time.Second, events: []string{"skewed"}})
		vanished.Store(true)
		w.act(n, act{after: 9 * time.Second})
		vanished.Store(false)
		w.act(n, act{after: time.Second})
		vanished.Store(true)
		w.act(n, act{after: 9 * time.Second})
		w.act(n, act{after: 5 * time.Second, ahead: time.Hour, events: []string{"recovered: skewed"}})
	})
}
