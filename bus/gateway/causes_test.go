package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

func failed(node, tag string, after time.Duration, why string) events.Event {
	return eventOf(node, "segment.refill_failed", tag, after, events.RefillFailed{Node: node, Tag: tag, Error: why})
}

const (
	noMySQL     = "the store is unavailable: MySQL (db:3306/leaf): dial tcp: connection refused"
	brokenMySQL = "the store is unavailable: the connection to MySQL broke, or nothing came from it in time (db:3306/leaf): invalid connection"
	noRecord    = "the store is unavailable: reading the record of order: nats: timeout"
	noKV        = "the store is unavailable: reading the record of MySQL: nats: timeout" // of a tag with that name
)

// causes are those of a view, each with its kind, harm, how far it reaches, and how many alerts it has.
func causes(v feedView) (list []string) {
	for _, c := range v.Causes {
		gone := ""
		if c.Gone {
			gone = " gone"
		}
		list = append(list, fmt.Sprintf("%s%s %s: %d keys, %d dry, %s, %d alerts", strings.TrimPrefix(c.Kind, "leaf."), gone, c.Harm, c.Keys, c.Dry,
			strings.Join(c.Nodes, "+"), c.Count))
	}
	return list
}

// One failure is one cause, whatever it raised, and those that harm callers come first.
func TestCauses(t *testing.T) {
	t.Parallel()
	second := time.Second
	lost := published("a", eventOf("c", "node.lost", "c", 9*second, events.Lost{Node: "c"}))
	regressed := func(tag string, action allocator.Action) events.Event {
		return eventOf("a", "segment.regressed", tag, 0, events.Regressed{Node: "a", Tag: tag, Action: action})
	}
	expiring := eventOf("a", "worker.expiring", "7", 0, events.Worker{Node: "a", Worker: 7, ReservedUntilMS: noon.Add(30 * second).UnixMilli()})
	for name, c := range map[string]struct {
		events []events.Event
		lasts  float64 // of the first generator; 0: nothing fails
		want   []string
	}{
		"a dead database": {
			[]events.Event{
				failed("a", "1", 0, noMySQL), failed("b", "1", second, brokenMySQL), failed("a", "2", 0, brokenMySQL), starved("a", "1", 2*second), starved("b", "1", 2*second),
			}, 5, []string{"mysql refused: 2 keys, 1 dry, a+b, 5 alerts"}},
		"a dead JetStream, with tags in MySQL and strict tags": {
			[]events.Event{
				failed("a", "order", 0, noRecord), failed("a", "MySQL", 0, noKV), eventOf("a", "records.unavailable", "a", 0, events.RecordsUnavailable{Node: "a"}),
			}, 5, []string{"jetstream ends: 2 keys, 0 dry, a, 3 alerts"}},
		"requests that waited in vain beside a store that works": {
			[]events.Event{starved("a", "1", 0), failed("a", "2", second, noMySQL)}, 5,
			[]string{"segment.starved refused: 1 keys, 1 dry, a, 1 alerts", "mysql ends: 1 keys, 0 dry, a, 1 alerts"}},
		"a damaged and a locked record": {
			[]events.Event{failed("a", "1", 0, allocator.ErrDamaged.Error()+": x"), failed("a", "2", second, allocator.ErrLocked.Error()+": in MySQL")}, 5,
			[]string{"locked ends: 1 keys, 0 dry, a, 1 alerts", "damaged ends: 1 keys, 0 dry, a, 1 alerts"}},
		"alerts of a generator that is gone": {
			[]events.Event{failed("a", "1", 0, noMySQL), starved("gone", "1", 0), lost}, 5,
			[]string{"mysql ends: 1 keys, 0 dry, a, 1 alerts", "node.lost reduced: 1 keys, 0 dry, c, 1 alerts", "segment.starved gone refused: 1 keys, 1 dry, gone, 1 alerts"}},
		"a worker that ends before the IDs do": {
			[]events.Event{expiring, failed("a", "1", 0, noMySQL)}, 60, []string{"worker.expiring ends: 1 keys, 0 dry, a, 1 alerts", "mysql ends: 1 keys, 0 dry, a, 1 alerts"}},
		"a store that went back": {
			[]events.Event{regressed("1", allocator.Advanced), regressed("2", allocator.Dropped)}, 0, []string{"segment.regressed none: 2 keys, 0 dry, a, 2 alerts"}},
	} {
		f := newFeed(nil, nil)
		for _, e := range c.events {
			f.addLive(e)
		}
		states := []admin.State{{}}
		if c.lasts > 0 {
			states = append(states, admin.State{FailingLasts: &c.lasts})
		}
		v := f.view(func(node string) bool { return node != "gone" && node != "c" })
		v.group(states, noon)
		if got := causes(v); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
}
