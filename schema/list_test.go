package schema

import (
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// TestList pages through names that collations order in other ways, and
// through rows that are no tags.
func TestList(t *testing.T) {
	t.Parallel()
	names := []string{
		"M", "Z.z", "_x", "a", "a-b", "a.b", "a/b", "a=b", "ab", "a_b", "b", "order", "order%", "order%1", "orderX1", "order_1", "100%", "zz",
		"", " first", "two words", "tab\there", "äpfel", "größe", "naïve",
	}
	all := slices.Sorted(slices.Values(names))
	for _, collation := range append(collations, "utf8mb4_unicode_520_ci", "ucs2_general_ci") {
		t.Run(collation, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, "desc", collation)
			db := direct(t, dsn+"?charset=utf8mb4")
			for _, name := range names {
				if _, err := db.Exec("INSERT INTO leaf_alloc (biz_tag, max_id, step, `desc`) VALUES (?, 1, 10, ?)", name, "of "+name); err != nil {
					t.Fatal(err)
				}
			}
			s := newStore(t, dsn)
			pages := func(q allocator.Query) {
				var want, got []string
				for _, name := range all {
					if strings.HasPrefix(name, q.Prefix) && strings.Contains(name, q.Contains) {
						want = append(want, name)
					}
				}
				for len(got) <= len(all) {
					page, err := s.List(within(t), q)
					if err != nil {
						t.Fatalf("List(%#v): %v", q, err)
					}
					if len(page) == 0 {
						break
					}
					for _, tag := range page {
						got = append(got, tag.Name)
						if tag.Description != "of "+tag.Name || tag.Step != 10 || tag.Updated.IsZero() {
							t.Errorf("List: %+v", tag)
						}
					}
					q.After = got[len(got)-1]
				}
				if !slices.Equal(got, want) {
					t.Errorf("pages of %#v: %q, want %q", q, got, want)
				}
			}
			for _, prefix := range []string{"", "a", "a.", "a_", "order", "order%", "order_", "%", "_", "o", "O", "M", "gr", "grö", "日本", "🍃", `\`, "'", "two ", "nothing"} {
				for _, size := range []int{2, 3, 100} {
					pages(allocator.Query{Prefix: prefix, Limit: size})
				}
			}
			for _, text := range []string{"a", "b", "r", "R", ".", "/", "=", "-", "%", "_", "r%", "r_", "0%", " ", "o w", "\t", "Z", "ö", "Ö", "o", "ß", "ss", "ïve", "äpfel", "\xc3", "\xb6ß", "日本", "🍃", `\`, "'", `"`, "?", "?0", "nothing"} {
				for _, prefix := range []string{"", "order", "gr"} {
					pages(allocator.Query{Prefix: prefix, Contains: text, Limit: 2})
				}
			}
			if tags, err := s.List(within(t), allocator.Query{After: "a/", Limit: 2}); err != nil || len(tags) != 2 || tags[0].Name != "a/b" || tags[1].Name != "a=b" {
				t.Errorf("List after a name that is not there: %v, %v", tags, err)
			}
		})
	}
}
