package schema

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/tests/kit"
)

// reported is what one reading of the table reports.
func reported(tb testing.TB, s *Store, all bool) map[string]allocator.Tag {
	tb.Helper()
	tags := make(map[string]allocator.Tag)
	if err := s.read(within(tb), all, func(t allocator.Tag) {
		if _, ok := tags[t.Name]; ok {
			tb.Errorf("%s is reported twice", t.Name)
		}
		tags[t.Name] = t
	}); err != nil {
		tb.Fatalf("reading the table: %v", err)
	}
	return tags
}

// wantReported checks what a reading reports, in short: step/floor, or how far a
// deleted tag was.
func wantReported(tb testing.TB, when string, got map[string]allocator.Tag, want map[string]string) {
	tb.Helper()
	short := make(map[string]string)
	for name, t := range got {
		if short[name] = fmt.Sprintf("%d/%d", t.Step, t.Floor); t.Deleted {
			short[name] = fmt.Sprintf("deleted %d", t.MaxID)
		}
	}
	if fmt.Sprint(short) != fmt.Sprint(want) {
		tb.Errorf("%s it reports %v, want %v", when, short, want)
	}
}

type reports = map[string]string

// TestWatchTells reads the table step by step.
func TestWatchTells(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	const insert = "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES "
	execute(t, dsn, insert+"('order', 500, 10), ('two words', 1, 10), ('bad', 1, 0), ('mail', 1, 20)")
	s, other := newStore(t, dsn), newStore(t, dsn)
	createTag(t, other, "tomb", 1, 10)
	reserve(t, other, "tomb", 100)
	remove(t, other, "tomb")

	all := reports{"order": "10/0", "mail": "20/0", "tomb": "deleted 101"}
	wantReported(t, "at first", reported(t, s, true), all)
	reserve(t, s, "order", 1)
	reserve(t, other, "order", 100)
	wantReported(t, "when max_id moved", reported(t, s, false), reports{})
	wantReported(t, "asked for all", reported(t, s, true), all)

	execute(t, dsn, "UPDATE leaf_alloc SET step = 30 WHERE biz_tag = 'order'", insert+"('new', 1, 5)")
	wantReported(t, "when a step changed and a row appeared", reported(t, s, false), reports{"order": "30/0", "new": "5/0"})
	setMaxID(t, other, "order", 9000)
	wantReported(t, "when max_id was moved by an operator", reported(t, s, false), reports{"order": "30/9000"})

	execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag = 'new'")
	remove(t, other, "mail")
	wantReported(t, "when tags were deleted", reported(t, s, false), reports{"new": "deleted 0", "mail": "deleted 1"})
	wantReported(t, "after that", reported(t, s, false), reports{})
	createTag(t, other, "mail", 1, 20)
	reserve(t, other, "mail", 100)
	remove(t, other, "mail")
	createTag(t, other, "mail", 1, 20)
	wantReported(t, "when it was deleted and created between two readings", reported(t, s, false), reports{"mail": "20/101"})

	// A row that was fixed is reported. One that became invalid is not, and it has not vanished either.
	execute(t, dsn, "UPDATE leaf_alloc SET step = 7 WHERE biz_tag = 'bad'", "UPDATE leaf_alloc SET step = -1 WHERE biz_tag = 'mail'")
	wantReported(t, "when a row was fixed and one became invalid", reported(t, s, false), reports{"bad": "7/0"})

	// What only this store saw, between two readings, must not be kept either.
	createTag(t, other, "brief", 1, 10)
	reserve(t, s, "brief", 1)
	remove(t, other, "brief")
	wantReported(t, "when a tag came and went between two readings", reported(t, s, false), reports{"brief": "deleted 11"})
	execute(t, dsn, "DELETE FROM leaf_alloc")
	wantReported(t, "when the table was emptied", reported(t, s, false), reports{"order": "deleted 0", "bad": "deleted 0", "mail": "deleted 0"})
	_, err := s.Reserve(within(t), "order", 1, 1)
	wantError(t, "Reserve", err, allocator.ErrUnknownTag)
}

// TestChangedWhileReading changes tags between the statements of a reading: no change is missed, and no tag vanishes
// that is there.
func TestChangedWhileReading(t *testing.T) {
	t.Parallel()
	const marks, rows, delete = "FROM `leaf_mark`", "FROM `leaf_alloc`", "DELETE FROM leaf_alloc WHERE biz_tag = 'order'"
	for name, c := range map[string]struct {
		before    func(dsn string, other *Store)
		statement string // that the change comes before
		nth       int32
		change    func(dsn string, s, other *Store)
		now, next reports
	}{
		"reserved of a tag that is not read": {nil, marks, 1, func(_ string, s, _ *Store) { s.remember("unread", 10) },
			reports{}, reports{"unread": "deleted 0"}},
		"deleted": {nil, rows, 1, func(_ string, _, other *Store) { remove(t, other, "order") },
			reports{"order": "deleted 500"}, reports{}},
		"deleted by SQL": {nil, rows, 1, func(dsn string, _, _ *Store) { execute(t, dsn, delete) },
			reports{"order": "deleted 0"}, reports{}},
		"created again": {func(_ string, other *Store) { reserve(t, other, "order", 1); remove(t, other, "order") }, marks, 2,
			func(_ string, _, other *Store) { createTag(t, other, "order", 1, 10) },
			reports{}, reports{"order": "10/510"}}, // callers that wait for its IDs get them
		"inserted again and reserved of": {func(dsn string, _ *Store) { execute(t, dsn, delete) }, marks, 2,
			func(dsn string, s, _ *Store) {
				execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 500, 10)")
				s.remember("order", 10)
			}, reports{}, reports{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := kit.NewDatabase(t)
			p, slow := through(t, dsn)
			s, other := newStore(t, slow), newStore(t, dsn)
			createTag(t, other, "order", 500, 10)
			wantReported(t, "at first", reported(t, s, true), reports{"order": "10/500"})
			if c.before != nil {
				c.before(dsn, other)
			}
			var seen atomic.Int32
			p.OnRequest(func(data []byte) kit.Action {
				if bytes.Contains(data, []byte(c.statement)) && seen.Add(1) == c.nth {
					c.change(dsn, s, other)
				}
				return kit.Forward
			})
			wantReported(t, "meanwhile", reported(t, s, false), c.now)
			if seen.Load() < c.nth {
				t.Errorf("the statement came %d times", seen.Load())
			}
			wantReported(t, "the next time", reported(t, s, false), c.next)
		})
	}
}

// TestUnfitRows names the rows that are not served, once, and not all of many.
func TestUnfitRows(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10), ('two words', 1, 10), ('zero', 1, 0)",
		"INSERT INTO leaf_alloc (biz_tag, max_id, step) SELECT CONCAT('number ', seq), 1, 10 FROM seq_100_to_122")
	var log notes
	s := prepareStore(t, dsn, &log)
	if err := s.Open(within(t)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantReported(t, "each time", reported(t, s, true), reports{"order": "10/0"})
		if text := log.String(); strings.Count(text, "illegal tag") != 20 || strings.Count(text, "count=25") != 1 {
			t.Errorf("the log has %s", text)
		}
	}
	if tags, unfit := served(t, s); tags != 1 || len(unfit) != 25 {
		t.Errorf("Rows: %d, %v", tags, unfit)
	}
}

// TestBrokenReading loses the connection in the middle of a table: the rows
// that did not come have not vanished.
func TestBrokenReading(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	// Far more than fits into the buffers on the way.
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) SELECT CONCAT('tag.', seq, '.', REPEAT('x', 100)), 1, 10 FROM seq_1_to_50000")
	p, slow := through(t, dsn)
	s := newStore(t, slow)
	if n := len(reported(t, s, true)); n != 50000 {
		t.Fatalf("%d tags were told", n)
	}
	execute(t, dsn, "UPDATE leaf_alloc SET step = 11", "DELETE FROM leaf_alloc WHERE biz_tag LIKE 'tag.1.%'")
	seen := 0
	err := s.read(within(t), false, func(tag allocator.Tag) {
		if tag.Deleted {
			t.Errorf("%s has not vanished", tag.Name)
		}
		if seen++; seen == 10 {
			p.Cut()
		}
	})
	wantError(t, "a reading that broke", err, allocator.ErrUnavailable)
	wantError(t, "Err", s.Err(), allocator.ErrUnavailable)
	if seen < 10 || seen >= 49999 {
		t.Fatalf("the reading broke after %d tags", seen)
	}
	rest, gone := reported(t, s, false), 0
	for _, tag := range rest {
		if tag.Deleted {
			gone++
		}
	}
	if gone != 1 || len(rest)+seen != 50000 {
		t.Errorf("then it told %d tags, %d of them deleted; want %d and 1", len(rest), gone, 50000-seen)
	}
	if s.Err() != nil {
		t.Errorf("Err when the database is back: %v", s.Err())
	}
}
