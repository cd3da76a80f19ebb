package allocator_test

import (
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// atOnce is how many tags are loaded ahead at a time, givesUp the failures in a
// row that end it.
const atOnce, givesUp = 4, 8

func recentLine(tag string, at time.Time) string {
	text := fmt.Sprintf("%s %d", tag, at.Unix())
	return fmt.Sprintf("%08x %s\n", crc32.ChecksumIEEE([]byte(text)), text)
}

// recentFile returns the path of a file with these tags, used now.
func recentFile(t *testing.T, tags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recent")
	text := ""
	for _, tag := range tags {
		text += recentLine(tag, time.Now())
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantRecent checks that the file has exactly these tags with these times.
func wantRecent(t *testing.T, path string, want map[string]time.Time) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	var lines []string
	for tag, at := range want {
		lines = append(lines, recentLine(tag, at))
	}
	got := slices.Sorted(strings.Lines(string(data)))
	if slices.Sort(lines); !slices.Equal(got, lines) {
		t.Errorf("the file has\n%s, want\n%s", strings.Join(got, ""), strings.Join(lines, ""))
	}
}

// takeOf takes n IDs of a tag, then lets everything that follows happen.
func takeOf(t *testing.T, a *allocator.Allocator, tag string, n int64) []allocator.Range {
	t.Helper()
	ranges, err := a.Take(t.Context(), tag, n)
	if err != nil {
		t.Fatalf("Take(%s, %d): %v", tag, n, err)
	}
	synctest.Wait()
	return ranges
}

// wantTags checks which tags are in memory, all with a segment of the step.
func wantTags(t *testing.T, a *allocator.Allocator, step int64, want ...string) {
	t.Helper()
	var got []string
	for _, v := range a.Views(allocator.Query{Limit: math.MaxInt32}) {
		got = append(got, v.Tag)
		if v.Left != step || len(v.Segments) != 1 || v.Step != step || v.State != "ok" || v.Taken != 0 {
			t.Errorf("%s has %+v", v.Tag, v)
		}
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("in memory are %v, want %v", got, want)
	}
}

// many returns tag names in their order.
func many(n int) (tags []string) {
	for i := range n {
		tags = append(tags, fmt.Sprintf("tag%03d", i))
	}
	return tags
}

// TestRecentIsKept: the file has the tags that IDs were taken from, with the
// hour of the last use, after a sweep and at the end.
func TestRecentIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path := recentFile(t)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		s := newStore(t, 10, "other", "late", "never")
		a, stop := startStop(t, allocator.Config{Store: s, Recent: path})
		take(t, a, 1)
		takeOf(t, a, "other", 10)
		a.Take(t.Context(), "nobody", 1)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		wantRecent(t, path, map[string]time.Time{"order": begin, "other": begin}) // kill -9 keeps this

		// The hour is not over: nothing is written, however much is taken.
		os.Remove(path)
		for range 10 {
			take(t, a, 1)
			time.Sleep(5 * time.Minute)
		}
		wantFiles(t, filepath.Dir(path))

		time.Sleep(30 * time.Minute)
		take(t, a, 1)
		takeOf(t, a, "late", 1)
		stop()
		hour := begin.Add(time.Hour)
		wantRecent(t, path, map[string]time.Time{"order": hour, "late": hour, "other": begin})
		wantFiles(t, filepath.Dir(path), "recent")
	})
}

// TestRecentIsLoadedAhead: a start reserves one segment for each tag that was
// used, the last used first, a few at a time.
func TestRecentIsLoadedAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path := recentFile(t)
		tags := many(30)
		s := newStore(t, 10, append(tags, "never")...)
		a, stop := startStop(t, allocator.Config{Store: s, Recent: path})
		used := tags[:20]
		for _, tag := range used[:8] {
			takeOf(t, a, tag, 1)
		}
		time.Sleep(time.Hour)
		for _, tag := range used[8:] {
			takeOf(t, a, tag, 1)
		}
		stop()

		s = s.twin()
		s.slow(100 * time.Millisecond)
		var r events
		a = start(t, allocator.Config{Store: s, Recent: path, Notify: r.notify})
		time.Sleep(time.Minute)
		wantTags(t, a, 10, slices.Clone(used)...)
		calls := s.reserves()
		if len(calls) != len(used) || s.most != atOnce {
			t.Errorf("%d reservations, up to %d at once; want %d and %d", len(calls), s.most, len(used), atOnce)
		}
		for i, c := range calls {
			if late := slices.Index(used, c.tag) >= 8; late != (i < 12) || c.n != 1 {
				t.Errorf("reservation %d is of %d IDs of %s", i+1, c.n, c.tag)
			}
		}
		for _, e := range published[allocator.Refilled](&r) {
			if e.Cause != allocator.CausePrefetch || e.Step != 10 {
				t.Errorf("published was %+v", e)
			}
		}
		// From here on all is as ever: the second segment has the tag's step too.
		s.back()
		takeOf(t, a, used[0], 1)
		if c := s.reserves()[len(calls):]; len(c) != 1 || c[0].n != 10 || c[0].tag != used[0] {
			t.Errorf("the first ID led to %+v", c)
		}
	})
}

// TestRecentEnds: a tag that is only loaded ahead is forgotten when it was not
// used for a day; in between each start costs it a segment.
func TestRecentEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path := recentFile(t)
		s := newStore(t, 10, "other")
		time.Sleep(30 * time.Minute)
		hour := time.Now().Truncate(time.Hour)
		a, stop := startStop(t, allocator.Config{Store: s, Recent: path})
		take(t, a, 1)
		stop()
		used := time.Now()
		for _, c := range []struct {
			after time.Duration
			kept  bool
		}{
			{0, true}, {6 * time.Hour, true}, {23 * time.Hour, true}, {24*time.Hour - 1, true}, {24 * time.Hour, true}, {25 * time.Hour, false}, {26 * time.Hour, false},
		} {
			time.Sleep(time.Until(used.Add(c.after)))
			s := s.twin()
			a, stop := startStop(t, allocator.Config{Store: s, Recent: path})
			synctest.Wait()
			if c.kept {
				wantTags(t, a, 10, "order")
			} else {
				wantTags(t, a, 10)
			}
			stop()
			if n := len(s.reserves()); (n == 1) != c.kept {
				t.Errorf("%d reservations after %v", n, c.after)
			}
			if c.kept {
				wantRecent(t, path, map[string]time.Time{"order": hour})
			} else {
				wantRecent(t, path, nil)
			}
		}
	})
}

// TestRecentDeleted: a tag that is deleted leaves the file, and what is loaded
// ahead of it meanwhile is not served.
func TestRecentDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path := recentFile(t, "order")
		s := newStore(t, 10)
		release := make(chan struct{})
		s.onReserved(func(string, allocator.Range) error { <-release; return nil })
		a, stop := startStop(t, allocator.Config{Store: s, Recent: path})
		synctest.Wait()
		s.remove()
		synctest.Wait()
		close(release)
		synctest.Wait()
		if a.Tags() != 0 {
			t.Errorf("the deleted tag is in memory: %+v", a.Views(allocator.Query{Limit: 9}))
		}
		stop()
		wantRecent(t, path, nil)
	})
}
