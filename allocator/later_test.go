package allocator_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestLater: the first end counts, whoever brings it. The caller hears of it once, whenever it asks, unless it has
// withdrawn the request.
func TestLater(t *testing.T) {
	why := errors.New("why")
	ids := []allocator.Range{{First: 1, Last: 2}}
	for steps, c := range map[string]struct {
		times int // that the caller hears
		err   error
		slow  int
		gave  []error // what the owner hears
	}{
		"ask end cancel withdraw wait": {times: 1},
		"ask cancel end cancel wait":   {times: 1, err: why, gave: []error{why}},
		"ask withdraw end cancel wait": {gave: []error{nil}},
		"ask wait end":                 {times: 1, err: allocator.ErrTimedOut, slow: 1, gave: []error{allocator.ErrTimedOut}},
		"ask linger end wait":          {times: 1, slow: 1},
		"ask linger withdraw wait":     {slow: 1, gave: []error{nil}},
		"end ask wait":                 {times: 1},
		"cancel ask wait":              {times: 1, err: why, gave: []error{why}},
		"wait ask end":                 {times: 1, err: allocator.ErrTimedOut, slow: 1, gave: []error{allocator.ErrTimedOut}},
	} {
		inBubble(t, steps, func(t *testing.T) {
			var l allocator.Later
			var lock sync.Mutex
			var gave []error
			var got []allocator.Range
			var err error
			times, slow, now := 0, 0, time.Now()
			l.Begin(&lock, now.Add(time.Second), now.Add(2*time.Second), func(err error) error {
				gave = append(gave, err)
				return err
			})
			for step := range strings.FieldsSeq(steps) {
				switch step {
				case "ask":
					l.Then(func(r []allocator.Range, e error) {
						lock.Lock() // it must not be called under the lock
						defer lock.Unlock()
						times++
						got, err = r, e
					}, func() { slow++ })
				case "end":
					if len(gave) == 0 { // else it is in no queue any more
						lock.Lock()
						l.EndLocked(ids, nil)
						lock.Unlock()
						l.Announce()
					}
				case "cancel":
					l.Cancel(why)
				case "withdraw":
					l.Withdraw()
				case "linger":
					time.Sleep(1500 * time.Millisecond)
				case "wait":
					time.Sleep(3 * time.Second)
				}
				synctest.Wait()
			}
			served := c.times > 0 && c.err == nil
			if times != c.times || slow != c.slow || !errors.Is(err, c.err) || slices.Equal(got, ids) != served || !slices.Equal(gave, c.gave) {
				t.Errorf("heard %d times of %v, %v; slow %d times; the owner heard %v", times, got, err, slow, gave)
			}
		})
	}
}
