package generator

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// One failure is one finding, whatever it raised, until all that it raised is over. Each kind says what to do.
func TestFindings(t *testing.T) {
	t.Parallel()
	failed := func(tag string) allocator.Event {
		return allocator.RefillFailed{Tag: tag, Err: errors.New("no route")}
	}
	starved := func(tag string) allocator.Event { return allocator.Starved{Tag: tag} }
	over := func(tag, episode string) allocator.Event { return allocator.Recovered{Tag: tag, Episode: episode} }
	type away string // what alerts sees
	for name, c := range map[string]struct {
		raised []any
		want   []string
	}{
		"a dead database": {[]any{away("database.unavailable"), failed("b"), failed("a"), failed("c"), failed("d"), starved("a")},
			[]string{"critical database.unavailable a b c 4: away. Tags with too few IDs, so that callers are refused: 1. " +
				"Tags that live on the IDs in memory: 3"}},
		"a dead JetStream": {[]any{failed("a"), away("records.unavailable")},
			[]string{"problem records.unavailable a 1: away. Tags that live on the IDs in memory: 1, the first for 1m40s"}},
		"a store that refuses": {[]any{failed("a")},
			[]string{"problem segment.refill_failed a 1: no route. Tags that live on the IDs in memory: 1, the first for 1m40s"}},
		"a damaged record": {[]any{failed("a"), allocator.Damaged{Tag: "a", Err: errors.New("cut")}},
			[]string{"problem tag.damaged a 1: cut. Tags that live on the IDs in memory: 1, the first for 1m40s"}},
		"requests in vain beside a store that works": {[]any{starved("a"), failed("b")}, []string{
			"critical segment.starved a 1: memory has too few IDs, and no other generator has them",
			"problem segment.refill_failed b 1: no route. Tags that live on the IDs in memory: 1, the first for 1m40s"}},
		"a tag with the name of its generator": {[]any{failed("n")},
			[]string{"problem segment.refill_failed n 1: no route. Tags that live on the IDs in memory: 1, the first for 1m40s"}},
		"all is over": {[]any{failed("a"), starved("a"), over("a", "refill_failed"), over("a", "starved")}, nil},
		"one range at two generators": {[]any{allocator.Regressed{Tag: "a", Action: allocator.Advanced},
			allocator.Regressed{Tag: "a", Action: allocator.Dropped, InDoubt: bus.Range{First: 3, Last: 5}}},
			[]string{"critical segment.regressed a 1: two generators held one range: the IDs from 3 to 5 may come twice. " +
				"Look for them in your data"}},
		"a clock": {[]any{snowflake.ClockBackwards{Worker: 7, Offset: 3, Action: snowflake.Refused}},
			[]string{"critical clock.backwards 7 1: its clock is 3ms behind its last snowflake, and requests are refused"}},
		"a clock that goes on": {[]any{snowflake.ClockBackwards{Worker: 7, Action: snowflake.Waited},
			snowflake.Recovered{Worker: 7, Episode: snowflake.EpisodeBackwards}}, nil},
	} {
		f := newFindings("n", func(*nats.Msg) {})
		for _, e := range c.raised {
			switch e := e.(type) {
			case away:
				f.begin(string(e), "n", time.Now(), errors.New("away"))
			case allocator.Event:
				f.publish(allocatorEvent("n", "kv", e))
			case snowflake.Event:
				f.publish(snowflakeEvent("n", "kv", e))
			}
		}
		var got []string
		for _, found := range f.list(100, 0, nil) {
			of := strings.Join(append(slices.Clone(found.Keys), fmt.Sprint(found.Count)), " ")
			got = append(got, fmt.Sprintf("%s %s %s: %s", found.Severity, found.Kind, of, found.Message))
			if found.Do == "" || found.Since.IsZero() {
				t.Errorf("%s: %+v", name, found)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
	for what, severity := range events.Types() {
		if _, ok := kinds[strings.TrimPrefix(what, "leaf.")]; ok != (severity == wire.Alert) {
			t.Errorf("%s: it is a finding: %v", what, ok)
		}
	}
}

// Whatever fails, the state stays small. Failing tags hide nothing else.
func TestFindingsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFindings("n", func(*nats.Msg) {})
	for i := range maxOpen + 10 {
		f.publish(allocatorEvent("n", "kv", allocator.Starved{Tag: fmt.Sprint(i)}))
	}
	long, others := strings.Repeat("x", 1000), 0
	for kind := range kinds {
		if at := (about{kind, "n"}); !at.ofTag() {
			f.begin(kind, "n", time.Now(), errors.New(long))
			others++
		}
	}
	list := f.list(math.Inf(1), 0, nil)
	if size := len(wire.Encode(list)); len(list) != maxFindings || len(f.episodes) != maxOpen+others || size > 8<<10 {
		t.Errorf("%d findings of %d episodes, %d bytes", len(list), len(f.episodes), size)
	}
}
