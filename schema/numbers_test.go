package schema

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// insert makes the row of a tag.
func insert(tb testing.TB, s *Store, tag string, maxID, step int64) {
	tb.Helper()
	if err := s.Add(within(tb), allocator.Row{Name: tag, MaxID: maxID, Step: step}); err != nil {
		tb.Fatalf("Add(%s): %v", tag, err)
	}
}

// advance takes a range.
func advance(tb testing.TB, s *Store, tag string, n, from int64) allocator.Range {
	tb.Helper()
	r, _, err := s.Advance(within(tb), tag, n, from)
	if err != nil {
		tb.Fatalf("Advance(%s, %d, %d): %v", tag, n, from, err)
	}
	return r
}

// peek returns what there is of a tag.
func peek(tb testing.TB, s *Store, tag string) allocator.Row {
	tb.Helper()
	r, err := s.Peek(within(tb), tag)
	if err != nil {
		tb.Fatalf("Peek(%s): %v", tag, err)
	}
	return r
}

// wantRow checks what there is of a tag.
func wantRow(tb testing.TB, s *Store, want allocator.Row) {
	tb.Helper()
	got := peek(tb, s, want.Name)
	if problem := got.Problem; !errors.Is(problem, want.Problem) {
		tb.Errorf("%s: problem %v, want %v", want.Name, problem, want.Problem)
	}
	if got.Problem, want.Problem = nil, nil; got != want {
		tb.Errorf("the database has %+v, want %+v", got, want)
	}
}

// rows is all that Rows brings, by name.
func rows(tb testing.TB, s *Store) map[string]allocator.Row {
	tb.Helper()
	all := make(map[string]allocator.Row)
	if err := s.Rows(within(tb), func(r allocator.Row) {
		if _, ok := all[r.Name]; ok {
			tb.Errorf("%q comes twice", r.Name)
		}
		all[r.Name] = r
	}); err != nil {
		tb.Fatalf("Rows: %v", err)
	}
	return all
}

// served is how many rows can be served, and what is wrong with the others.
func served(tb testing.TB, s *Store) (tags int, unfit []string) {
	tb.Helper()
	for _, r := range rows(tb, s) {
		switch {
		case r.Problem != nil:
			unfit = append(unfit, r.Problem.Error())
		case r.MaxID > 0:
			tags++
		}
	}
	return tags, unfit
}
