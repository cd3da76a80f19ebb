package allocator_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

func TestViews(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tags []string
		for i := range 25 {
			tags = append(tags, fmt.Sprintf("a.%02d", i))
		}
		s := newStore(t, 100, tags...)
		a := start(t, allocator.Config{Store: s})
		for i, tag := range tags {
			if _, err := a.Take(t.Context(), tag, int64(1+i)); err != nil {
				t.Fatal(err)
			}
		}
		take(t, a, 50)
		var names []string
		for after := ""; ; after = names[len(names)-1] {
			page := a.Views("a.", after, 7)
			if len(page) == 0 {
				break
			}
			if len(page) > 7 || len(names) > 25 {
				t.Fatalf("a page of %d", len(page))
			}
			for _, v := range page {
				names = append(names, v.Tag)
			}
		}
		if fmt.Sprint(names) != fmt.Sprint(tags) {
			t.Errorf("the pages have %v, want %v", names, tags)
		}
		if got := a.Views("", "zzz", 7); len(got) != 0 {
			t.Errorf("beyond the end: %+v", got)
		}
		busiest := a.Busiest(3)
		if len(busiest) != 3 || busiest[0].Tag != "order" || busiest[1].Tag != "a.24" || busiest[2].Tag != "a.23" {
			t.Errorf("Busiest(3) = %+v", busiest)
		}
		if got := len(a.Busiest(100)); got != 26 || a.Tags() != 26 {
			t.Errorf("Busiest(100) has %d, Tags() is %d; want 26", got, a.Tags())
		}
	})
}

func TestView(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		a := start(t, allocator.Config{Store: s})
		s.slow(time.Second)
		if _, _, err := a.Request(nil, "order", 30); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if v := a.Views("", "", 1)[0]; v.State != "loading" || v.Waiting != 1 || v.Rate != 0 || !v.Refilled.IsZero() {
			t.Errorf("while it loads: %+v", v)
		}
		s.back()
		time.Sleep(11 * time.Second)
		v := a.Views("", "", 1)[0]
		want := []allocator.SegmentView{
			{Range: allocator.Range{First: 1, Last: 100}, Next: 31},
			{Range: allocator.Range{First: 101, Last: 200}, Next: 101},
		}
		if v.State != "ok" || v.Left != 170 || v.Taken != 30 || v.Waiting != 0 || v.Step != 100 || v.Rate != 3 || fmt.Sprint(v.Segments) != fmt.Sprint(want) {
			t.Errorf("afterwards: %+v", v)
		}
	})
}
