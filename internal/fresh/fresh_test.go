package fresh

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestRecordsAreBounded: records that are not fresh are forgotten, and those that are stay.
func TestRecordsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Records[int]
		for i := range 10_000 {
			time.Sleep(10 * time.Millisecond)
			f.Put(fmt.Sprint("tag", i), i, time.Now())
			if n := len(f.latest); n > most {
				t.Fatalf("%d records are remembered, 101 of them fresh", n)
			}
		}
		for i := 9990; i < 10_000; i++ {
			if r, ok := f.Get(fmt.Sprint("tag", i)); !ok || r != i {
				t.Errorf("the record of tag%d is %d, %v", i, r, ok)
			}
		}
		for i := range 5000 { // all are fresh
			f.Put(fmt.Sprint("fresh", i), 7, time.Now())
		}
		for i := range 5000 {
			if r, ok := f.Get(fmt.Sprint("fresh", i)); !ok || r != 7 {
				t.Fatalf("the fresh record %d is %d, %v", i, r, ok)
			}
		}
		time.Sleep(2 * time.Second)
		for i := range 10_000 {
			time.Sleep(10 * time.Millisecond)
			f.Put(fmt.Sprint("tag", i), 0, time.Now())
		}
		if n := len(f.latest); n > 2*most {
			t.Errorf("%d records are remembered", n)
		}
	})
}

// TestFresh: a record counts for 100 ms, and not after it was forgotten.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Records[int]
		if _, ok := f.Get("order"); ok {
			t.Error("a record that was never noted")
		}
		f.Put("order", 1, time.Now())
		time.Sleep(100 * time.Millisecond)
		if r, ok := f.Get("order"); !ok || r != 1 {
			t.Errorf("after 100 ms: %d, %v", r, ok)
		}
		time.Sleep(time.Nanosecond)
		if _, ok := f.Get("order"); ok {
			t.Errorf("the record is still fresh after more than 100 ms")
		}
		f.Put("order", 2, time.Now())
		f.Forget("order")
		if _, ok := f.Get("order"); ok {
			t.Error("a record that was forgotten")
		}
	})
}
