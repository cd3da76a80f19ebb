package schema

import (
	"slices"
	"testing"
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
			for _, prefix := range []string{"", "a", "a.", "a_", "order", "order%", "order_", "%", "_", "o", "O", "M", "gr", "grö", "日本", "🍃", `\`, "'", "two ", "nothing"} {
				var want []string
				for _, name := range all {
					if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
						want = append(want, name)
					}
				}
				for _, size := range []int{2, 3, 100} {
					var got []string
					for after := ""; len(got) <= len(all); {
						page, err := s.List(within(t), prefix, after, size)
						if err != nil {
							t.Fatalf("List(%q, %q, %d): %v", prefix, after, size, err)
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
						after = got[len(got)-1]
					}
					if !slices.Equal(got, want) {
						t.Errorf("pages of %d with the prefix %q: %q, want %q", size, prefix, got, want)
					}
				}
			}
			if tags, err := s.List(within(t), "", "a/", 2); err != nil || len(tags) != 2 || tags[0].Name != "a/b" || tags[1].Name != "a=b" {
				t.Errorf("List after a name that is not there: %v, %v", tags, err)
			}
		})
	}
}

// TestListFloors has the notes of each tag, and of no other.
func TestListFloors(t *testing.T) {
	t.Parallel()
	s := newStore(t, leafDatabase(t, "", "utf8mb4_general_ci"))
	for _, tag := range []string{"a", "b", "c"} {
		createTag(t, s, tag, 1, 10)
	}
	setMaxID(t, s, "b", 500)
	if _, err := s.Delete(within(t), "c"); err != nil {
		t.Fatal(err)
	}
	tags, err := s.List(within(t), "", "", 10)
	if err != nil || len(tags) != 2 || tags[0].Floor != 0 || tags[1].Floor != 500 || tags[1].MaxID != 500 {
		t.Errorf("List: %+v, %v", tags, err)
	}
}
