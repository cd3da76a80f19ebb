package allocator_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/leafbus/leafbus/allocator"
)

// TestList: a list has what there is, page by page, without tombstones. A tag whose record cannot be used has only its
// name. It waits until all tags are known.
func TestList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 2500 {
			w.make(allocator.Tag{Name: fmt.Sprintf("tag%04d", i)})
		}
		w.make(allocator.Tag{Name: "other"})
		for i := 100; i < 2000; i += 2 {
			w.bury(fmt.Sprintf("tag%04d", i), 0)
		}
		w.records.Spoil("tag0050", allocator.ErrDamaged)
		g := w.join("one")
		type answer struct {
			tags []allocator.Tag
			err  error
		}
		first := make(chan answer, 1)
		go func() {
			tags, err := g.List(t.Context(), allocator.Query{Prefix: "tag", Limit: 1000})
			first <- answer{tags, err}
		}()
		synctest.Wait()
		if len(first) > 0 {
			t.Error("a list came before the tags were known")
		}
		g.start()
		page := <-first
		seen := make(map[string]bool)
		for last := ""; ; {
			if page.err != nil {
				t.Fatal(page.err)
			}
			for _, tag := range page.tags {
				if seen[tag.Name] || tag.Name <= last || tag.Deleted || (tag.Step == 0) != (tag.Name == "tag0050") {
					t.Errorf("after %s came %+v", last, tag)
				}
				seen[tag.Name], last = true, tag.Name
			}
			if len(page.tags) < 1000 {
				break
			}
			page.tags, page.err = g.List(t.Context(), allocator.Query{Prefix: "tag", Limit: 1000, After: last})
		}
		if len(seen) != 2500-950 {
			t.Errorf("the list has %d tags", len(seen))
		}
		w.make(allocator.Tag{Name: "tag0050x"})
		w.bury("tag0051", 0)
		synctest.Wait()
		tags, err := g.List(t.Context(), allocator.Query{Prefix: "tag005", Limit: 100})
		if len(tags) != 10 || err != nil || tags[1].Name != "tag0050x" || tags[2].Name != "tag0052" {
			t.Errorf("%d tags, %v: %+v", len(tags), err, tags)
		}
		g.failing("load", errAway)
		if tags, err := g.List(t.Context(), allocator.Query{Limit: 10}); !errors.Is(err, errAway) {
			t.Errorf("%+v, %v", tags, err)
		}
	})
}
