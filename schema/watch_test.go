package schema

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// told is what one reading of the table tells.
func told(tb testing.TB, s *Store, all bool) map[string]allocator.Tag {
	tb.Helper()
	tags := make(map[string]allocator.Tag)
	if err := s.read(within(tb), all, func(t allocator.Tag) {
		if _, ok := tags[t.Name]; ok {
			tb.Errorf("%s is told twice", t.Name)
		}
		tags[t.Name] = t
	}); err != nil {
		tb.Fatalf("reading the table: %v", err)
	}
	return tags
}

// wantTold checks what a reading tells, in short: step/floor, or how far a
// deleted tag was.
func wantTold(tb testing.TB, when string, got map[string]allocator.Tag, want map[string]string) {
	tb.Helper()
	short := make(map[string]string)
	for name, t := range got {
		if short[name] = fmt.Sprintf("%d/%d", t.Step, t.Floor); t.Deleted {
			short[name] = fmt.Sprintf("deleted %d", t.MaxID)
		}
	}
	if fmt.Sprint(short) != fmt.Sprint(want) {
		tb.Errorf("%s it tells %v, want %v", when, short, want)
	}
}

type tells = map[string]string

// TestWatchTells reads the table step by step.
func TestWatchTells(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 500, 10), ('two words', 1, 10), ('bad', 1, 0), ('mail', 1, 20)")
	s, other := newStore(t, dsn), newStore(t, dsn)
	createTag(t, other, "tomb", 1, 10)
	reserve(t, other, "tomb", 100)
	remove(t, other, "tomb")

	wantTold(t, "at first", told(t, s, true), tells{"order": "10/0", "mail": "20/0", "tomb": "deleted 101"})
	wantTold(t, "when nothing changed", told(t, s, false), tells{})
	reserve(t, s, "order", 1)
	reserve(t, other, "order", 100)
	wantTold(t, "when max_id moved", told(t, s, false), tells{})
	wantTold(t, "asked for all", told(t, s, true), tells{"order": "10/0", "mail": "20/0", "tomb": "deleted 101"})

	execute(t, dsn, "UPDATE leaf_alloc SET step = 30 WHERE biz_tag = 'order'", "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('new', 1, 5)")
	wantTold(t, "when a step changed and a row appeared", told(t, s, false), tells{"order": "30/0", "new": "5/0"})
	setMaxID(t, other, "order", 9000)
	wantTold(t, "when max_id was moved by an operator", told(t, s, false), tells{"order": "30/9000"})

	execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag = 'new'")
	wantTold(t, "when a row was deleted by SQL", told(t, s, false), tells{"new": "deleted 0"})
	wantTold(t, "after that", told(t, s, false), tells{})
	remove(t, other, "mail")
	wantTold(t, "when a tag was deleted", told(t, s, false), tells{"mail": "deleted 1"})
	wantTold(t, "after that", told(t, s, false), tells{})
	createTag(t, other, "mail", 1, 20)
	wantTold(t, "when it was created again", told(t, s, false), tells{"mail": "20/1"})

	reserve(t, other, "mail", 100)
	remove(t, other, "mail")
	createTag(t, other, "mail", 1, 20)
	wantTold(t, "when it was deleted and created between two readings", told(t, s, false), tells{"mail": "20/101"})

	// Mended, a row is told; spoilt, it is not, and it has not vanished either.
	execute(t, dsn, "UPDATE leaf_alloc SET step = 7 WHERE biz_tag = 'bad'", "UPDATE leaf_alloc SET step = -1 WHERE biz_tag = 'mail'")
	wantTold(t, "when a row was mended and another spoilt", told(t, s, false), tells{"bad": "7/0"})

	// What only this store saw, between two readings, must not be kept either.
	createTag(t, other, "brief", 1, 10)
	reserve(t, s, "brief", 1)
	remove(t, other, "brief")
	createTag(t, s, "mine", 1, 10)
	remove(t, s, "mine")
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('handmade', 1, 10)")
	reserve(t, s, "handmade", 1)
	execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag = 'handmade'")
	_, err := s.Reserve(within(t), "handmade", 1, 1)
	wantError(t, "Reserve of a row that is gone", err, allocator.ErrUnknownTag)
	wantTold(t, "when tags came and went between two readings", told(t, s, false),
		tells{"brief": "deleted 11", "mine": "deleted 1", "handmade": "deleted 0"})

	remove(t, other, "order")
	createTag(t, other, "order", 1, 30)
	told(t, s, false)
	remove(t, other, "order")
	wantTold(t, "asked for all when a tag was deleted", told(t, s, true), tells{"order": "deleted 9000", "bad": "7/0",
		"tomb": "deleted 101", "brief": "deleted 11", "mine": "deleted 1"})
	createTag(t, other, "order", 1, 30)
	told(t, s, false)

	execute(t, dsn, "DELETE FROM leaf_alloc")
	wantTold(t, "when the table was emptied", told(t, s, false), tells{"order": "deleted 0", "bad": "deleted 0", "mail": "deleted 0"})
	wantTold(t, "asked for all", told(t, s, true), tells{"tomb": "deleted 101", "brief": "deleted 11", "mine": "deleted 1"})
	if _, err := s.Reserve(within(t), "order", 1, 1); !errors.Is(err, allocator.ErrUnknownTag) {
		t.Errorf("Reserve: %v", err)
	}
}

// TestSeenWhileReading creates and reserves tags while the table is read: none
// of them has vanished.
func TestSeenWhileReading(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	p, slow := through(t, dsn)
	s, other := newStore(t, slow), newStore(t, dsn)
	createTag(t, s, "order", 1, 10)
	told(t, s, true)
	createTag(t, other, "mail", 1, 10)
	var once sync.Once
	// After the notes were read, and before the rows are.
	p.OnRequest(func(data []byte) proxy.Action {
		if bytes.Contains(data, []byte("leaf_mark")) && !bytes.Contains(data, []byte("INSERT")) {
			once.Do(func() {
				setMaxID(t, other, "order", 77)
				s.remember("mail", 10) // as a Reserve that gets its answer now
				s.remember("unread", 10)
			})
		}
		return proxy.Forward
	})
	got := told(t, s, false)
	if _, ok := got["unread"]; ok {
		t.Errorf("what was seen while the table was read has vanished: %v", got)
	}
	wantTold(t, "the next time", told(t, s, false), tells{"unread": "deleted 0"})
}

// TestDeletedWhileReading deletes a tag after the notes were read, and before
// the rows are: that it was deleted, and how far it was, must be told.
func TestDeletedWhileReading(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	p, slow := through(t, dsn)
	s, other := newStore(t, slow), newStore(t, dsn)
	for _, tag := range []string{"order", "mail", "hand"} {
		createTag(t, s, tag, 500, 10)
	}
	told(t, s, true)
	for _, c := range []struct {
		tag string
		run func()
		all bool
		tells
	}{
		{"order", func() { remove(t, other, "order") }, false, tells{"order": "deleted 500"}},
		{"mail", func() {
			remove(t, other, "mail")
			// A row that is there is not told as deleted, whatever is noted.
			execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 500, 10)")
		}, true, tells{"order": "10/500", "mail": "deleted 500", "hand": "10/500"}},
		{"hand", func() { execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag = 'hand'") }, false, tells{"hand": "deleted 0"}},
	} {
		var once sync.Once
		p.OnRequest(func(data []byte) proxy.Action {
			if bytes.Contains(data, []byte("FROM `leaf_alloc`")) {
				once.Do(c.run)
			}
			return proxy.Forward
		})
		wantTold(t, "when "+c.tag+" was deleted meanwhile", told(t, s, c.all), c.tells)
		wantTold(t, "after that", told(t, s, false), tells{})
	}
}

// TestSeenAgain breaks, and outruns, the look at how far a vanished tag was.
func TestSeenAgain(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	p, slow := through(t, dsn)
	s := newStore(t, slow)
	for _, tag := range []string{"order", "mail"} {
		createTag(t, s, tag, 1, 10)
	}
	told(t, s, true)
	execute(t, dsn, "DELETE FROM leaf_alloc")
	second := func(action proxy.Action, f func()) {
		var looks atomic.Int64
		p.OnRequest(func(data []byte) proxy.Action {
			if bytes.Contains(data, []byte("FROM `leaf_mark`")) && looks.Add(1) == 2 {
				f()
				return action
			}
			return proxy.Forward
		})
	}
	second(proxy.CutBefore, func() {})
	err := s.read(within(t), false, func(tag allocator.Tag) { t.Errorf("told of %+v", tag) })
	wantError(t, "a reading that broke", err, allocator.ErrUnavailable)
	// It is there again, and somebody has reserved of it.
	second(proxy.Forward, func() {
		execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10)")
		s.remember("order", 10)
	})
	wantTold(t, "when one was seen again", told(t, s, false), tells{"mail": "deleted 0"})
	p.OnRequest(nil)
	wantTold(t, "after that", told(t, s, false), tells{})
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
	wantTold(t, "at first", told(t, s, true), tells{"order": "10/0"})
	text := log.String()
	if !strings.Contains(text, "number 100") || strings.Count(text, "illegal tag") != 20 || !strings.Contains(text, "count=25") {
		t.Errorf("the log has %s", text)
	}
	execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag LIKE 'number%'")
	told(t, s, true)
	if log.String() != text {
		t.Errorf("it was told again: %s", log.String())
	}

	log = notes{}
	s = prepareStore(t, dsn, &log)
	if err := s.Open(within(t)); err != nil {
		t.Fatal(err)
	}
	told(t, s, true)
	if text := log.String(); !strings.Contains(text, "two words") || !strings.Contains(text, "the step of zero") || !strings.Contains(text, "count=2") {
		t.Errorf("the log has %s", text)
	}
	if tags, unfit, err := s.Rows(within(t)); err != nil || tags != 1 || len(unfit) != 2 {
		t.Errorf("Rows: %d, %v, %v", tags, unfit, err)
	}
	execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag <> 'order'")
	if tags, unfit, err := s.Rows(within(t)); err != nil || tags != 1 || unfit == nil || len(unfit) != 0 {
		t.Errorf("Rows: %d, %v, %v", tags, unfit, err)
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
	if n := len(told(t, s, true)); n != 50000 {
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
	rest, gone := told(t, s, false), 0
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

// TestWatchAgain watches before and after an outage.
func TestWatchAgain(t *testing.T) {
	t.Parallel()
	dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
	execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('stays', 1, 10), ('goes', 1, 10)")
	p, slow := through(t, dsn)
	s := newStore(t, slow)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var breaks atomic.Int64
	tags := make(chan allocator.Tag, 1000)
	over := make(chan struct{})
	go func() { // as the service does
		defer close(over)
		for ctx.Err() == nil {
			if err := s.Watch(ctx, func(t allocator.Tag) { tags <- t }); err == nil {
				t.Error("Watch ended without an error")
			}
			breaks.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(refresh):
			}
		}
	}()
	await := func(what string, ok func(allocator.Tag) bool) {
		t.Helper()
		for {
			select {
			case tag := <-tags:
				if ok(tag) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("the watch did not show %s", what)
			}
		}
	}
	await("a tag", func(tag allocator.Tag) bool { return tag.Name == "goes" && !tag.Deleted })
	execute(t, dsn, "UPDATE leaf_alloc SET step = 11 WHERE biz_tag = 'stays'")
	await("a new step", func(tag allocator.Tag) bool { return tag.Name == "stays" && tag.Step == 11 })
	p.Refuse(true)
	testkit.Eventually(t, "Watch to break", func() bool { return breaks.Load() > 1 })
	wantError(t, "Err", s.Err(), allocator.ErrUnavailable)
	execute(t, dsn, "DELETE FROM leaf_alloc WHERE biz_tag = 'goes'", "UPDATE leaf_alloc SET step = 12")
	p.Refuse(false)
	await("what vanished meanwhile", func(tag allocator.Tag) bool { return tag.Name == "goes" && tag.Deleted })
	execute(t, dsn, "UPDATE leaf_alloc SET step = 13")
	await("what changed since", func(tag allocator.Tag) bool { return tag.Name == "stays" && tag.Step == 13 })
	cancel()
	<-over
}

// TestDefaults has a store for whoever sets nothing.
func TestDefaults(t *testing.T) {
	s, err := New(Config{DSN: "root:secret@tcp(127.0.0.1:1)/leaf"})
	if err != nil || s.cfg.Refresh != DefaultRefresh || s.cfg.Log == nil {
		t.Fatalf("New: %+v, %v", s, err)
	}
	if s.Name() != "127.0.0.1:1/leaf" {
		t.Errorf("it is called %s", s.Name())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestCreatedWhileReading creates a deleted tag again after its row was not found, and before its mark is read. The tag
// has not vanished: callers that wait for its IDs get them.
func TestCreatedWhileReading(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	p, slow := through(t, dsn)
	s, other := newStore(t, slow), newStore(t, dsn)
	createTag(t, other, "order", 1, 10)
	reserve(t, other, "order", 1)
	told(t, s, true)
	remove(t, other, "order")
	var readings atomic.Int32
	p.OnRequest(func(data []byte) proxy.Action {
		if bytes.Contains(data, []byte("leaf_mark")) && readings.Add(1) == 2 {
			createTag(t, other, "order", 1, 10)
		}
		return proxy.Forward
	})
	wantTold(t, "while the tag is created again", told(t, s, false), tells{})
	wantTold(t, "the next time", told(t, s, false), tells{"order": "10/11"})
}
