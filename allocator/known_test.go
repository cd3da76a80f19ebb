package allocator

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestKnownIsBounded: records that are not fresh are forgotten, and those that are stay.
func TestKnownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := WithLedger(nil, nil, nil).(*claimed)
		for i := range 10_000 {
			time.Sleep(10 * time.Millisecond)
			c.remember(fmt.Sprint("tag", i), known{Entry{End: int64(i)}, time.Now()})
			if n := len(c.latest); n > maxKnown {
				t.Fatalf("%d records are remembered, 101 of them fresh", n)
			}
		}
		for i := 9900; i < 10_000; i++ {
			if k := c.latest[fmt.Sprint("tag", i)]; k.End != int64(i) {
				t.Errorf("the record of tag%d is %+v", i, k)
			}
		}
		for i := range 5000 { // all are fresh
			c.remember(fmt.Sprint("fresh", i), known{Entry{End: 7}, time.Now()})
		}
		for i := range 5000 {
			if k := c.latest[fmt.Sprint("fresh", i)]; k.End != 7 {
				t.Fatalf("the fresh record %d is %+v", i, k)
			}
		}
		time.Sleep(2 * time.Second)
		for i := range 10_000 {
			time.Sleep(10 * time.Millisecond)
			c.remember(fmt.Sprint("tag", i), known{Entry{}, time.Now()})
		}
		if n := len(c.latest); n > 2*maxKnown {
			t.Errorf("%d records are remembered", n)
		}
	})
}
