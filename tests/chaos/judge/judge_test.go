package judge

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// trial is a judge in tests. Its times are milliseconds.
type trial struct{ *Judge }

func (j trial) at(ms int64) time.Time { return j.began.Add(time.Duration(ms) * time.Millisecond) }

// got adds a call: sent, answered, and pairs of first and last ID.
func (j trial) got(tag string, sent, ended int64, ids ...int64) {
	c := callers.Call{Kind: "raw", Tag: tag, Sent: j.at(sent), Ended: j.at(ended)}
	for pair := range slices.Chunk(ids, 2) {
		c.Ranges = append(c.Ranges, bus.Range{First: pair[0], Last: pair[1]})
	}
	j.Add(c)
}

func (j trial) ahead(tag string, sent, ended, id int64) {
	j.Add(callers.Call{
		Kind: "Pool", Tag: tag, Ahead: true, Sent: j.at(sent), Ended: j.at(ended), Ranges: []bus.Range{{First: id, Last: id}},
	})
}

// excuse forgives from 100 ms to 200 ms.
func (j trial) excuse(check string, first, last int64) {
	j.Excuse(Excuse{
		Check: check, Tag: "a", IDs: bus.Range{First: first, Last: last}, From: j.at(100), Until: j.at(200), Why: "test",
	})
}

func (j trial) check(ms int64) string {
	if v := j.Check(j.at(ms)); v != nil {
		return v.Check
	}
	return ""
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		do   func(j trial)
		want string // the check; empty: all is well
	}{
		{"all is well", func(j trial) {
			j.got("a", 0, 1, 1, 5, 9, 9)
			j.got("a", 0, 2, 6, 8)
			j.got("", 0, 1, 1, 9)
		}, ""},
		{"twice", func(j trial) { j.got("a", 0, 1, 1, 5); j.got("a", 3, 4, 5, 5) }, twice},
		{"twice around an ID", func(j trial) { j.got("a", 0, 1, 5, 5); j.got("a", 3, 4, 1, 9) }, twice},
		{"twice in one answer", func(j trial) { j.got("a", 0, 1, 1, 5, 5, 6) }, twice},
		{"a snowflake twice", func(j trial) { j.got("", 0, 1, 1, 5); j.got("", 3, 4, 5, 5) }, twice},
		{"twice, with an error", func(j trial) {
			j.got("a", 0, 1, 1, 5)
			j.Add(callers.Call{Tag: "a", Ended: j.at(2), Err: errors.New("late"), Ranges: []bus.Range{{First: 5, Last: 5}}})
		}, twice},
		{"twice, also after a deletion", func(j trial) {
			j.got("a", 0, 1, 1, 5)
			j.Delete("a", j.at(2))
			j.Create("a", j.at(3))
			j.got("a", 4, 5, 1, 5)
		}, twice},
		{"0 is no ID", func(j trial) { j.got("a", 0, 1, 0, 5) }, invalid},
		{"no range", func(j trial) { j.got("a", 0, 1, 5, 4) }, invalid},

		{"trend order", func(j trial) { j.got("a", 0, 1, 6, 6); j.got("a", 2, 3, 5, 5) }, ""},
		{"strict order", func(j trial) { j.Strict("a"); j.got("a", 0, 1, 6, 6); j.got("a", 2, 3, 5, 5) }, order},
		{"strict order, concurrent", func(j trial) {
			j.Strict("a")
			j.got("a", 0, 2, 6, 6)
			j.got("a", 2, 3, 5, 5)
		}, ""},
		{"strict order, not the last answer", func(j trial) {
			j.Strict("a")
			j.got("a", 0, 1, 6, 6)
			j.got("a", 0, 9, 4, 4)
			j.got("a", 10, 11, 5, 5)
		}, order},
		{"strict order, added late", func(j trial) {
			j.Strict("a")
			j.got("a", 20, 30, 5, 5)
			j.check(1000)
			j.got("a", 0, 10, 6, 6)
		}, order},
		{"strict order, added late, concurrent", func(j trial) {
			j.Strict("a")
			j.got("a", 20, 30, 5, 5)
			j.check(1000)
			j.got("a", 0, 20, 6, 6)
		}, ""},
		{"runs", func(j trial) { j.Strict("a"); j.got("a", 0, 1, 1, 1, 3, 3) }, runs},

		{"domain", func(j trial) { j.Opaque("a", 100); j.got("a", 0, 1, 100, 100, 1, 1) }, ""},
		{"outside the domain", func(j trial) { j.Opaque("a", 100); j.got("a", 0, 1, 101, 101) }, domain},
		{"opaque, fetched ahead", func(j trial) { j.Opaque("a", 100); j.ahead("a", 0, 1, 101) }, domain},
		{"opaque has no end", func(j trial) {
			j.Opaque("a", 100)
			j.got("a", 0, 1, 50, 50)
			j.End("a", 2, j.at(10))
			j.Floor("a", 60, j.at(10))
			j.Limit("a", 5, j.at(10))
			j.got("a", 11, 12, 40, 40)
		}, ""},

		{"floor", func(j trial) { j.Floor("a", 100, j.at(5)); j.got("a", 6, 7, 99, 100) }, floor},
		{"floor, above", func(j trial) { j.Floor("a", 100, j.at(5)); j.got("a", 6, 7, 100, 100) }, ""},
		{"floor, sent before", func(j trial) { j.Floor("a", 100, j.at(5)); j.got("a", 5, 7, 99, 99) }, ""},
		{"floor, fetched ahead", func(j trial) { j.Floor("a", 100, j.at(5)); j.ahead("a", 6, 7, 99) }, ""},
		{"floor, of another tag", func(j trial) { j.Floor("b", 100, j.at(5)); j.got("a", 6, 7, 99, 99) }, ""},
		{"floor, after a new creation", func(j trial) {
			j.Floor("a", 100, j.at(5))
			j.Create("a", j.at(6))
			j.got("a", 7, 8, 99, 99)
		}, floor},
		{"floor, added late", func(j trial) {
			j.got("a", 6, 7, 99, 99)
			j.check(1000)
			j.Floor("a", 100, j.at(5))
		}, floor},

		{"limit", func(j trial) { j.Limit("a", 100, j.at(5)); j.got("a", 6, 7, 100, 101) }, limit},
		{"limit, below", func(j trial) { j.Limit("a", 100, j.at(5)); j.got("a", 6, 7, 1, 100) }, ""},
		{"limit, sent before", func(j trial) { j.Limit("a", 100, j.at(5)); j.got("a", 4, 7, 101, 101) }, ""},
		{"limit, removed", func(j trial) {
			j.Limit("a", 100, j.at(5))
			j.Limit("a", 0, j.at(7))
			j.got("a", 6, 7, 101, 101)
		}, ""},
		{"limit, removed later", func(j trial) {
			j.Limit("a", 100, j.at(5))
			j.Limit("a", 0, j.at(8))
			j.got("a", 6, 7, 101, 101)
		}, limit},
		{"limit, changed", func(j trial) {
			j.Limit("a", 100, j.at(5))
			j.Limit("a", 200, j.at(6))
			j.got("a", 7, 8, 101, 200)
		}, ""},

		{"paused", func(j trial) { j.Pause("a", j.at(5)); j.got("a", 6, 7, 1, 1) }, paused},
		{"paused, sent before", func(j trial) { j.Pause("a", j.at(5)); j.got("a", 5, 7, 1, 1) }, ""},
		{"paused, fetched ahead", func(j trial) { j.Pause("a", j.at(5)); j.ahead("a", 6, 7, 1) }, ""},
		{"resumed", func(j trial) { j.Pause("a", j.at(5)); j.Resume("a", j.at(7)); j.got("a", 6, 7, 1, 1) }, ""},
		{"resumed later", func(j trial) {
			j.Pause("a", j.at(5))
			j.Resume("a", j.at(8))
			j.got("a", 6, 7, 1, 1)
		}, paused},
		{"paused again", func(j trial) {
			j.Pause("a", j.at(5))
			j.Resume("a", j.at(6))
			j.Pause("a", j.at(7))
			j.got("a", 8, 9, 1, 1)
		}, paused},
		{"a resumed tag may be deleted", func(j trial) {
			j.Delete("a", j.at(5))
			j.Resume("a", j.at(6))
			j.got("a", 7, 8, 1, 1)
		}, deleted},
		{"deleted", func(j trial) { j.Delete("a", j.at(5)); j.got("a", 6, 7, 1, 1) }, deleted},
		{"created again, without its rules", func(j trial) {
			j.Limit("a", 5, j.at(1))
			j.Pause("a", j.at(2))
			j.Delete("a", j.at(5))
			j.Create("a", j.at(6))
			j.got("a", 7, 8, 6, 6)
		}, ""},

		{"end", func(j trial) { j.got("a", 0, 4, 1, 100); j.End("a", 100, j.at(5)) }, ends},
		{"end, of an answer long ago", func(j trial) {
			j.got("a", 0, 4, 1, 100)
			j.check(10_000_000)
			j.End("a", 100, j.at(10_000_000))
		}, ends},
		{"end, above", func(j trial) { j.got("a", 0, 4, 1, 100); j.End("a", 101, j.at(5)) }, ""},
		{"end, asked before", func(j trial) { j.got("a", 0, 5, 1, 100); j.End("a", 100, j.at(5)) }, ""},
		{"end, fetched ahead", func(j trial) { j.ahead("a", 0, 4, 100); j.End("a", 100, j.at(5)) }, ends},
		{"end, an answer added late", func(j trial) {
			j.End("a", 100, j.at(5))
			j.check(1000)
			j.got("a", 0, 4, 100, 100)
		}, ends},

		{"excused twice", func(j trial) {
			j.excuse(twice, 4, 5)
			j.got("a", 0, 1, 1, 5)
			j.got("a", 99, 100, 4, 4, 5, 6)
		}, ""},
		{"excused, but three times", func(j trial) {
			j.excuse(twice, 4, 5)
			j.got("a", 0, 1, 1, 5)
			j.got("a", 99, 100, 4, 4)
			j.got("a", 99, 101, 4, 4)
		}, twice},
		{"two excuses", func(j trial) {
			j.excuse(twice, 4, 5)
			j.excuse(twice, 1, 4)
			j.got("a", 0, 1, 1, 5)
			j.got("a", 99, 100, 4, 4)
			j.got("a", 99, 101, 1, 5)
		}, ""},
		{"excused, another ID", func(j trial) {
			j.excuse(twice, 4, 4)
			j.got("a", 0, 1, 1, 5)
			j.got("a", 0, 100, 4, 5)
		}, twice},
		{"excused, too early", func(j trial) {
			j.excuse(twice, 1, 5)
			j.got("a", 0, 1, 1, 5)
			j.got("a", 0, 99, 4, 5)
		}, twice},
		{"excused, too late", func(j trial) {
			j.excuse(twice, 1, 5)
			j.got("a", 0, 1, 1, 5)
			j.got("a", 0, 201, 4, 5)
		}, twice},
		{"excused, another tag", func(j trial) {
			j.excuse(twice, 1, 5)
			j.got("b", 0, 1, 1, 5)
			j.got("b", 0, 100, 4, 5)
		}, twice},
		{"excused, another check", func(j trial) {
			j.excuse(order, 1, 5)
			j.got("a", 0, 1, 1, 5)
			j.got("a", 0, 100, 4, 5)
		}, twice},
		{"excused order", func(j trial) {
			j.Strict("a")
			j.excuse(order, 1, 9)
			j.got("a", 0, 1, 9, 9)
			j.got("a", 101, 102, 4, 4)
			j.got("a", 103, 104, 5, 5)
		}, ""},
		{"excused order, but not since the fault", func(j trial) {
			j.Strict("a")
			j.excuse(order, 1, 9)
			j.got("a", 0, 1, 9, 9)
			j.got("a", 101, 102, 5, 5)
			j.got("a", 103, 104, 4, 4)
		}, order},
		{"excused order, declared late", func(j trial) {
			j.Strict("a")
			j.got("a", 0, 1, 9, 9)
			j.got("a", 101, 102, 10, 10)
			j.check(1000)
			j.excuse(order, 1, 99)
			j.got("a", 103, 104, 8, 8)
		}, order},
		{"excused floor", func(j trial) {
			j.excuse(floor, 1, 9)
			j.Floor("a", 9, j.at(5))
			j.got("a", 6, 100, 1, 8)
		}, ""},
		{"excused floor, another ID", func(j trial) {
			j.excuse(floor, 2, 9)
			j.Floor("a", 9, j.at(5))
			j.got("a", 6, 100, 1, 8)
		}, floor},
		{"excused end", func(j trial) { j.excuse(ends, 5, 9); j.got("a", 0, 1, 1, 9); j.End("a", 5, j.at(100)) }, ""},
		{"excused end, asked later", func(j trial) {
			j.excuse(ends, 5, 9)
			j.got("a", 0, 1, 1, 9)
			j.End("a", 5, j.at(201))
		}, ends},
		{"excused end, a lower ID", func(j trial) {
			j.excuse(ends, 6, 9)
			j.got("a", 0, 1, 6, 9)
			j.got("a", 0, 1, 5, 5)
			j.End("a", 5, j.at(100))
		}, ends},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := trial{New()}
			test.do(j)
			if got := j.check(20_000_000); got != test.want {
				t.Errorf("found %q, want %q: %+v", got, test.want, j.Check(j.at(0)))
			}
		})
	}
}

func TestViolation(t *testing.T) {
	t.Parallel()
	j := trial{New()}
	j.got("a", 10, 20, 1, 5, 7, 9)
	j.got("b", 10, 20, 1, 5)
	j.got("a", 3000, 3100, 8, 8, 11, 11)
	if got := j.check(3400); got != "" {
		t.Errorf("%s, before the answer settled", got)
	}
	v := j.Check(j.at(3401))
	if v == nil || v.Check != twice || len(v.Calls) != 2 || !v.At.Equal(j.at(3100)) {
		t.Fatalf("found %+v", v)
	}
	for i, want := range []bus.Range{{First: 8, Last: 8}, {First: 8, Last: 8}} {
		if c := v.Calls[i]; c.Kind != "raw" || c.Tag != "a" || len(c.Ranges) != 1 || c.Ranges[0] != want {
			t.Errorf("call %d is %+v, want that with %v", i, c, want)
		}
	}
	first, second := v.Calls[0], v.Calls[1]
	if !first.Sent.Equal(j.at(10)) || !second.Sent.Equal(j.at(3000)) || !strings.HasPrefix(v.Text, `"a": 8 came twice`) {
		t.Errorf("found %+v", v)
	}
	j.got("a", 3101, 3201, 12, 12)
	if again := j.Check(j.at(9999)); again != v {
		t.Errorf("then found %+v, want the first violation", again)
	}
	around := j.Around(v, time.Second)
	if len(around) != 2 || len(around[0].Ranges) != 2 || around[1].Ranges[0].First != 12 {
		t.Errorf("around it: %+v", around)
	}
}

func TestExcused(t *testing.T) {
	t.Parallel()
	j := trial{New()}
	j.excuse(twice, 1, 9)
	j.excuse(floor, 1, 9)
	j.got("a", 0, 1, 1, 5)
	j.got("a", 99, 100, 2, 2)
	j.got("a", 99, 100, 3, 3)
	if got := j.check(1000); got != "" {
		t.Errorf("found %s", got)
	}
	used := j.Excused()
	if len(used) != 2 || used[0].Used != 2 || used[0].Why != "test" || used[1].Used != 0 {
		t.Errorf("excused: %+v", used)
	}
	if met := j.Met(j.at(100), j.at(150))["raw"]; met.Calls != 2 || met.IDs != 2 || met.Gap != 99*time.Millisecond {
		t.Errorf("met %+v", met)
	}
	if ids := j.Taken("a"); len(ids) != 1 || ids[0] != (bus.Range{First: 1, Last: 5}) {
		t.Errorf("taken: %v", ids)
	}
}
