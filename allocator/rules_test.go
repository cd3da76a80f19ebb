package allocator_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// changeOf reads a change of rules as an operator sends it.
func changeOf(tb testing.TB, text string) (c idspace.RulesChange) {
	tb.Helper()
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return c
}

// rule changes the rules of "order" in the store. No generator hears of it before the watch.
func (s *store) rule(text string) allocator.Stored {
	s.tb.Helper()
	return s.change(allocator.Change{RulesChange: changeOf(s.tb, text)})
}

func TestRulesWith(t *testing.T) {
	for _, c := range []struct{ from, change, want string }{
		{`{}`, `{}`, `{}`},
		{`{}`, `{"quota":{"per_second":5}}`, `{"quota":{"per_second":5,"burst":5}}`},
		{`{}`, `{"quota":{"per_second":1099511627776,"burst":1}}`, `{"quota":{"per_second":1099511627776,"burst":1}}`},
		{`{"quota":{"per_second":5,"burst":9}}`, `{"quota":{"per_second":0}}`, `{}`},
		{`{"quota":{"per_second":5,"burst":9}}`, `{"paused":true}`, `{"quota":{"per_second":5,"burst":9},"paused":true}`},
		{`{"paused":true}`, `{"paused":false}`, `{}`},
		{`{}`, `{"outlast":"1s"}`, `{"outlast":"1s"}`},
		{`{}`, `{"outlast":"168h0m0s"}`, `{"outlast":"168h"}`},
		{`{"outlast":"90m"}`, `{"paused":true}`, `{"paused":true,"outlast":"1h30m"}`},
		{`{"outlast":"1h"}`, `{"outlast":"0s"}`, `{}`},
		{`{}`, `{"limit":"9223372036854775806"}`, `{"limit":"9223372036854775806"}`},
		{`{}`, `{"limit":2147483647}`, `{"limit":"2147483647"}`},
		{`{"limit":"5"}`, `{"limit":"0"}`, `{}`},
	} {
		was, err := allocator.Rules{}.With(changeOf(t, c.from))
		if err != nil {
			t.Errorf("%s: %v", c.from, err)
		}
		is, err := was.With(changeOf(t, c.change))
		if err != nil {
			t.Errorf("%s, then %s: %v", c.from, c.change, err)
		}
		switch {
		case c.change == "{}":
			if is != was {
				t.Errorf("nothing was changed, and %+v became %+v", was, is)
			}
		case is.Version != was.Version+1:
			t.Errorf("%s, then %s: the version is %d after %d", c.from, c.change, is.Version, was.Version)
		}
		is.Version = 0
		if got, err := json.Marshal(is); err != nil || string(got) != c.want {
			t.Errorf("%s, then %s: %s, %v; want %s", c.from, c.change, got, err, c.want)
		}
	}
}

// TestRulesAfter: a tag that is created again has no rules, and generators that remember the old ones must learn that.
func TestRulesAfter(t *testing.T) {
	if got, want := (allocator.Rules{}).After(allocator.Rules{Version: 7, Paused: true}), (allocator.Rules{Version: 8}); got != want {
		t.Errorf("created again: %+v, want %+v", got, want)
	}
	if got := (allocator.Rules{}).After(allocator.Rules{}); got != (allocator.Rules{}) {
		t.Errorf("created again without rules: %+v", got)
	}
}

func TestRulesRefused(t *testing.T) {
	strict := allocator.Tag{Name: "order", MaxID: 1, Order: allocator.Strict}
	trend := allocator.Tag{Name: "order", MaxID: 1, Step: 100}
	for _, c := range []struct {
		tag          allocator.Tag
		change, want string
	}{
		{trend, `{"quota":{"per_second":-1}}`, "quota"}, {trend, `{"quota":{"per_second":1099511627777}}`, "quota"},
		{trend, `{"quota":{"per_second":1,"burst":-1}}`, "quota"}, {trend, `{"quota":{"per_second":1,"burst":1099511627777}}`, "quota"},
		{trend, `{"quota":{"burst":5}}`, "quota"},
		{trend, `{"outlast":"999ms"}`, "outlast"}, {trend, `{"outlast":"-1h"}`, "outlast"}, {trend, `{"outlast":"168h0m1s"}`, "outlast"},
		{trend, `{"limit":-1}`, "limit"}, {trend, `{"limit":"9223372036854775807"}`, "limit"},
		{strict, `{"outlast":"1m"}`, "strict"},
	} {
		got, err := c.tag.With(allocator.Change{RulesChange: changeOf(t, c.change)})
		if !errors.Is(err, idspace.ErrBadValue) || !strings.Contains(err.Error(), c.want) || got.Rules != (allocator.Rules{}) {
			t.Errorf("%s: %+v, error %v, which should be about %s", c.change, got.Rules, err, c.want)
		}
		if _, err := allocator.NewRules(changeOf(t, c.change), c.tag.Order); !errors.Is(err, idspace.ErrBadValue) {
			t.Errorf("%s of a new tag: %v", c.change, err)
		}
	}
	if _, err := strict.With(allocator.Change{RulesChange: changeOf(t, `{"quota":{"per_second":5},"paused":true,"limit":"9"}`)}); err != nil {
		t.Errorf("a strict tag: %v", err)
	}
}

func TestEndingAt80Percent(t *testing.T) {
	for limit, reserved := range map[int64]int64{1: 1, 2: 2, 4: 4, 5: 4, 10: 8, 100: 80, 1<<31 - 1: 1717986918, 0: (math.MaxInt64 - 1) - (math.MaxInt64-1)/5} {
		r := allocator.Rules{Limit: limit}
		if r.Ending(reserved) || !r.Ending(reserved+1) {
			t.Errorf("limit %d: Ending(%d) = %v and Ending(%d) = %v, want false and true", limit, reserved, r.Ending(reserved), reserved+1, r.Ending(reserved+1))
		}
	}
	if left := (allocator.Rules{Limit: 10}).Left(11); left != 0 {
		t.Errorf("%d IDs are left above the limit", left)
	}
	if left := (allocator.Rules{Limit: 10}).Left(10); left != 1 {
		t.Errorf("%d IDs are left at the limit", left)
	}
}
