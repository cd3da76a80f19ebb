package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// takeMany asks for so many IDs, one at a time, whoever answers.
func takeMany(t *testing.T, nc *nats.Conn, tag string, count int, checker *allocatortest.Checker) (lowest, highest int64) {
	t.Helper()
	for range count {
		msg := ask(t, nc, "leaf.segment."+tag, "")
		granted(t, msg)
		ranges, err := bus.ParseReply(msg.Data)
		must(t, err)
		checker.Add(ranges...)
		if id := ranges[0].First; lowest == 0 || id < lowest {
			lowest = id
		}
		highest = max(highest, ranges[0].First)
	}
	return lowest, highest
}

// usedBy asks until each of so many generators has handed out IDs of a tag,
// and returns the highest ID.
func usedBy(t *testing.T, nc *nats.Conn, tag string, nodes int, checker *allocatortest.Checker) (highest int64) {
	t.Helper()
	testkit.Eventually(t, "all generators to hand out IDs of "+tag, func() bool {
		_, high := takeMany(t, nc, tag, 1, checker)
		highest = max(highest, high)
		used := 0
		for _, b := range askBuffers(t, nc, tag, nodes) {
			if b.Taken > 0 {
				used++
			}
		}
		return used == nodes
	})
	return highest
}

// unknownEverywhere asks so often that each of two generators is asked.
func unknownEverywhere(t *testing.T, nc *nats.Conn, tag string) {
	t.Helper()
	for range 40 {
		refused(t, ask(t, nc, "leaf.segment."+tag, ""), 404, bus.UnknownTag)
	}
}

type refill struct {
	Node, Tag, Cause string
	First, Last      bus.ID
	Step             int64
	ElapsedMS        float64 `json:"elapsed_ms"`
}

// Tags are added, changed and removed in the table by those who know nothing
// of leaf.
func TestTagsChangedBySQL(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	server := newNATS(t)
	url := server.ClientURL()
	join(t, url, dsn, []string{"one", "two"}, "--tag-refresh", "200ms", "--max-step", "5000")
	nc := connect(t, url)
	js := jetStream(t, nc)
	insert := func(tag string, maxID, step int) {
		execute(t, db, fmt.Sprintf("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('%s', %d, %d)", tag, maxID, step))
	}

	t.Run("inserted", func(t *testing.T) {
		unknownEverywhere(t, nc, "order") // so nothing is remembered of that
		insert("order", 501, 10)
		if low, _ := takeMany(t, nc, "order", 40, &allocatortest.Checker{}); low != 501 {
			t.Errorf("the lowest ID is %d, want 501", low)
		}
	})

	t.Run("step", func(t *testing.T) {
		var checker allocatortest.Checker
		insert("step", 1, 10)
		usedBy(t, nc, "step", 2, &checker)
		for _, step := range []int64{5000, 20} {
			execute(t, db, fmt.Sprintf("UPDATE leaf_alloc SET step = %d WHERE biz_tag = 'step'", step))
			before := maxIDOf(t, db, "step")
			if step == 20 {
				// A larger step is in force at once, whoever knows of it. A smaller one is
				// when the table was read, for by itself a generator goes on as it had adapted.
				testkit.Eventually(t, "both to know the step", func() bool {
					known := 0
					for _, b := range askBuffers(t, nc, "step", 2) {
						if b.Step == step {
							known++
						}
					}
					before = maxIDOf(t, db, "step")
					return known == 2
				})
			}
			testkit.Eventually(t, fmt.Sprintf("a refill after the step was changed to %d", step), func() bool {
				msg := ask(t, nc, "leaf.segment.step", "20") // no more than the least step
				granted(t, msg)
				ranges, err := bus.ParseReply(msg.Data)
				must(t, err)
				checker.Add(ranges...)
				return maxIDOf(t, db, "step") > before
			})
			var size int64
			testkit.Eventually(t, "its event", func() bool {
				for _, e := range allEvents[refill](t, js, "leaf.events.info.segment.refill.step") {
					if int64(e.First) == before {
						size = int64(e.Last-e.First) + 1
					}
				}
				return size > 0
			})
			if size != step {
				t.Errorf("the first refill after the step was changed to %d reserved %d", step, size)
			}
		}
		_, err := checker.Check()
		must(t, err)
	})

	t.Run("max_id", func(t *testing.T) {
		var checker allocatortest.Checker
		insert("moved", 1, 50)
		usedBy(t, nc, "moved", 2, &checker)
		before := maxIDOf(t, db, "moved")
		execute(t, db, "UPDATE leaf_alloc SET max_id = 1000000 WHERE biz_tag = 'moved'")
		// What was reserved before is handed out, at most all of it.
		for range before + 100 {
			low, high := takeMany(t, nc, "moved", 1, &checker)
			if low < 1_000_000 && high >= before {
				t.Fatalf("ID %d was neither reserved before nor is it above", low)
			}
		}
		if low, _ := takeMany(t, nc, "moved", 10, &checker); low < 1_000_000 {
			t.Errorf("ID %d comes after all that was reserved before", low)
		}
		_, err := checker.Check()
		must(t, err)
	})

	t.Run("deleted", func(t *testing.T) {
		usedBy(t, nc, "order", 2, &allocatortest.Checker{})
		execute(t, db, "DELETE FROM leaf_alloc WHERE biz_tag = 'order'")
		testkit.Eventually(t, "both to forget the tag", func() bool { return len(askBuffers(t, nc, "order", 2)) == 0 })
		unknownEverywhere(t, nc, "order")
		takeMany(t, nc, "step", 20, &allocatortest.Checker{}) // the others are still there
	})

	t.Run("emptied", func(t *testing.T) {
		execute(t, db, "DELETE FROM leaf_alloc")
		testkit.Eventually(t, "both to forget all tags", func() bool {
			return len(askBuffers(t, nc, "step", 2))+len(askBuffers(t, nc, "moved", 2)) == 0
		})
		for _, tag := range []string{"step", "moved"} {
			unknownEverywhere(t, nc, tag)
		}
	})
}

// What leaf changes is in force at all generators at once: they read the table
// far too seldom to learn it from there.
func TestTagsChangedByLeaf(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	server := newNATS(t)
	url := server.ClientURL()
	generators := join(t, url, dsn, []string{"one", "two"}, "--tag-refresh", "24h")
	nc := connect(t, url)
	var checker allocatortest.Checker

	leafOK(t, "tag", "add", "order", "--step", "100", "--max-id", "7", "-s", url)
	usedBy(t, nc, "order", 2, &checker)
	highest := int64(0)
	for _, maxID := range []int64{10_000, 20_000, 30_000} {
		leafOK(t, "tag", "set", "order", "--max-id", strconv.FormatInt(maxID, 10), "-s", url)
		var low int64
		low, highest = takeMany(t, nc, "order", 40, &checker)
		if low < maxID {
			t.Errorf("ID %d after max_id was moved to %d", low, maxID)
		}
		usedBy(t, nc, "order", 2, &checker)
	}
	leaf(t, "tag", "set", "order", "--max-id", "5", "-s", url).want(t, 1, "409 conflict")
	for range 3 {
		highest = max(highest, usedBy(t, nc, "order", 2, &checker))
		leafOK(t, "tag", "rm", "order", "--yes", "-s", url)
		unknownEverywhere(t, nc, "order")
		leaf(t, "tag", "show", "order", "-s", url).want(t, 1, "404 unknown_tag")
		leafOK(t, "tag", "add", "order", "-s", url)
		low, high := takeMany(t, nc, "order", 40, &checker)
		if low <= highest {
			t.Errorf("ID %d after the tag was made again, %d was handed out before", low, highest)
		}
		highest = high
	}
	if _, err := checker.Check(); err != nil {
		t.Error(err)
	}
	for _, g := range generators {
		g.stop()
	}
}

// A row was deleted by SQL, so nobody noted how far it was, and the tag is made
// again by a generator that has never heard of it. The ledger knows how far it was. Another generator has used it and
// has not noticed: it may hand out what it holds, once.
func TestTagMadeAgainAfterItsRowWasDeleted(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	server := newNATS(t)
	url := server.ClientURL()
	args := []string{"--tag-refresh", "24h", "--max-step", "1000"}
	knows := join(t, url, dsn, []string{"knows"}, args...)["knows"]
	nc := connect(t, url)
	c := bus.NewClient(nc)
	js := jetStream(t, nc)
	checkers, highest := make(map[string]*allocatortest.Checker), make(map[string]int64)
	for i := range 30 {
		tag := fmt.Sprint("t", i)
		granted(t, ask(t, nc, bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":%q,"step":100}`, tag)))
		checkers[tag] = &allocatortest.Checker{}
		_, highest[tag] = takeMany(t, nc, tag, 15, checkers[tag]) // so it has two segments
		lastEvent[map[string]any](t, js, "leaf.events.info.segment.refill."+tag)
	}
	stream, err := js.Stream(t.Context(), bus.EventStream)
	must(t, err)
	must(t, stream.Purge(t.Context()))
	execute(t, db, "DELETE FROM leaf_alloc")
	join(t, url, dsn, []string{"new"}, args...)

	for tag := range checkers {
		made, err := c.CreateTag(t.Context(), bus.TagCreate{Tag: tag})
		if err != nil {
			t.Fatal(err)
		}
		if int64(made.MaxID) <= highest[tag] {
			t.Errorf("%s was made again at %d, %d was handed out before", tag, made.MaxID, highest[tag])
		}
		takeMany(t, nc, tag, 20, checkers[tag])
		usedBy(t, nc, tag, 2, checkers[tag])
		if _, err := checkers[tag].Check(); err != nil {
			t.Errorf("%s: %v", tag, err)
		}
		creator := lastEvent[struct {
			Node string
			tagRecord
		}](t, js, "leaf.events.info.tag.created."+tag).Node
		if creator == "new" {
			break
		}
		delete(checkers, tag)
	}
	if len(checkers) == 0 {
		t.Error("the one that is new made none of the tags")
	}
	knows.stop()
}

// Rows that leaf cannot serve are in nobody's way, and are named.
func TestRowsThatAreNotServed(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	execute(t, db, leafScripts["description"],
		"INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10), ('a b', 1, 10), ('Bestellung_ä', 1, 10), ('', 1, 10), ('two..dots', 1, 10), ('stepless', 100, 0), ('below', 100, -5)")
	unfit := []string{"", "Bestellung_ä", "a b", "below", "stepless", "two..dots"}
	g := embed(t, "--mysql", dsn, "--tag-refresh", "100ms", "--max-wait", "2s", "--log-format", "json")
	nc := connect(t, g.url)
	takeOne(t, bus.NewClient(nc), "order")

	var list struct {
		Tags     []tagRecord
		Unserved []struct {
			tagRecord
			Problem string
		}
		Next string
	}
	must(t, json.Unmarshal([]byte(leafOK(t, "tag", "list", "--json", "-s", g.url)), &list))
	var names []string
	for _, row := range list.Unserved {
		names = append(names, row.Tag)
		if row.Problem == "" {
			t.Errorf("nobody says why %q is not served", row.Tag)
		}
	}
	if slices.Sort(names); !slices.Equal(names, unfit) || len(list.Tags) != 1 || list.Tags[0].Tag != "order" {
		t.Errorf("of %v are not served: %q", list.Tags, names)
	}
	text := leafOK(t, "tag", "list", "-s", g.url)
	if n := strings.Count(text, "NOT SERVED: "); n != len(unfit) {
		t.Errorf("%d rows are shown as not served, want %d:\n%s", n, len(unfit), text)
	}
	for _, tag := range []string{"stepless", "below"} {
		e := refusal(t, ask(t, nc, "leaf.segment."+tag, ""))
		if e.Code != 503 || e.Reason != "store_unavailable" || !strings.Contains(e.Message, "leaf tag set "+tag+" --step") {
			t.Errorf("%s: answered %+v", tag, e)
		}
	}
	// The message says what to do, and that works.
	leafOK(t, "tag", "set", "stepless", "--step", "10", "-s", g.url)
	if id := takeOne(t, bus.NewClient(nc), "stepless"); id != 100 {
		t.Errorf("the first ID is %d, want 100", id)
	}
	// Once, however often the table is read.
	execute(t, db, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('gone', 1, 10)")
	takeOne(t, bus.NewClient(nc), "gone")
	execute(t, db, "DELETE FROM leaf_alloc WHERE biz_tag = 'gone'")
	testkit.Eventually(t, "the table to be read again", func() bool { return len(askBuffers(t, nc, "gone", 1)) == 0 })
	g.stop()
	told := 0
	for line := range strings.Lines(g.stderr.String()) {
		var entry struct{ Msg, Rows string }
		if json.Unmarshal([]byte(line), &entry) != nil || !strings.Contains(entry.Msg, "not served") {
			continue
		}
		told++
		for _, name := range unfit {
			if !strings.Contains(entry.Rows, strconv.Quote(name)+": ") {
				t.Errorf("the log does not name %q: %s", name, entry.Rows)
			}
		}
	}
	if told != 1 {
		t.Errorf("the log says %d times which rows are not served: %s", told, g.stderr.String())
	}
}
