package gateway

import (
	"fmt"
	"slices"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/admin"
)

// Pages of the store and of generators that have different tags in memory: walked
// through, each tag comes once, in order, with all that holds it.
func TestMergedPages(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	for range 300 {
		const names = 30
		var stored, unserved [names]bool
		held := make([][names]bool, random.IntN(4))
		want := make(map[string]string)
		for i := range names {
			name := fmt.Sprintf("t%02d", i)
			stored[i], unserved[i] = random.IntN(2) == 0, random.IntN(8) == 0
			if stored[i] {
				want[name] = "stored "
			}
			for node := range held {
				held[node][i] = random.IntN(3) == 0
				if held[node][i] {
					want[name] += fmt.Sprint(node, " ")
				}
			}
		}
		page := func(has [names]bool, after string, limit int) (found []string, next string) {
			for i := range names {
				if name := fmt.Sprintf("t%02d", i); has[i] && name > after {
					if len(found) == limit {
						return found, found[limit-1]
					}
					found = append(found, name)
				}
			}
			return found, ""
		}
		limit := 1 + random.IntN(7)
		got := make(map[string]string)
		var order []string
		for after, turns := "", 0; ; turns++ {
			var s admin.TagsPage
			var found []string
			found, s.Next = page(stored, after, 1+random.IntN(limit)) // one may bring fewer than were asked for
			for _, name := range found {
				i := 0
				fmt.Sscanf(name, "t%d", &i)
				if unserved[i] {
					s.Unserved = append(s.Unserved, admin.UnservedTag{TagRecord: admin.TagRecord{Tag: name}, Problem: "bad"})
				} else {
					s.Tags = append(s.Tags, admin.TagRecord{Tag: name})
				}
			}
			var b []admin.BuffersPage
			for node, has := range held {
				p := admin.BuffersPage{Node: fmt.Sprint(node)}
				found, p.Next = page(has, after, 1+random.IntN(limit))
				for _, name := range found {
					p.Buffers = append(p.Buffers, admin.Buffer{Tag: name})
				}
				b = append(b, p)
			}
			v := merge(s, b, limit)
			if len(v.Tags) > limit {
				t.Fatalf("%d tags on a page of %d", len(v.Tags), limit)
			}
			for _, tag := range v.Tags {
				order = append(order, tag.Tag)
				if tag.Stored {
					got[tag.Tag] += "stored "
				}
				for _, b := range tag.Buffers {
					got[tag.Tag] += b.Node + " "
				}
			}
			if v.Next == "" {
				break
			}
			if v.Next <= after || turns > names {
				t.Fatalf("after %q comes %q", after, v.Next)
			}
			after = v.Next
		}
		if !slices.IsSorted(order) || len(order) != len(want) {
			t.Fatalf("%d tags in the order %v, want %d", len(order), order, len(want))
		}
		for name := range want {
			if got[name] != want[name] {
				t.Fatalf("%s is of %q, want %q", name, got[name], want[name])
			}
		}
	}
}
