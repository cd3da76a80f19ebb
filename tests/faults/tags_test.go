package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// tags are what operators do to tags beside generators that serve them.
var tags = []scenario{
	{
		// The command returns when every generator that is heard has dropped what it holds below.
		fault: "max_id moves while a generator is held up", in: []setup{kv, inMySQL}, fails: callers.AnyFailure,
		strike: func(in *installation) {
			for range 6 {
				floor, i := in.highest()+1_000_000, in.random.IntN(2)
				in.freeze(i)
				moved := kit.Start(in.T, kit.Command(in.T, in.TempDir(), nil,
					"tag", "set", order, "--max-id", fmt.Sprint(floor), "-s", in.url))
				<-time.After(500 * time.Millisecond) // less than it takes until the generator counts as lost
				early := moved.Ended()
				in.thaw(i)
				if kit.Finish(in.T, moved).Status == 0 { // else the one that stood still was asked
					in.callers.Floor(order, floor)
					if early {
						in.Errorf("max_id was moved while n%d had what is below", i)
					}
				}
				in.more(50)
			}
		},
	},
	{
		// The command names the generator. It asks the store before it hands out an ID, over HTTP too.
		fault: "max_id moves while a generator stands still", in: []setup{kv, inMySQL}, fails: callers.AnyFailure,
		strike: func(in *installation) {
			in.freeze(1)
			if out := in.leaf("tag", "set", order, "--max-id", "5000000", "--json"); !strings.Contains(out, `"n1"`) {
				in.Errorf("the answer does not name the generator: %s", out)
			}
			in.callers.Floor(order, 5_000_000)
			in.thaw(1)
			for range 10 {
				status, body := in.get(1, "/api/segment/get/order")
				if id, err := strconv.ParseInt(body, 10, 64); err != nil || id < 5_000_000 {
					in.Fatalf("answered %d %s after max_id was moved to 5000000", status, body)
				}
			}
			in.held(2)
		},
	},
	{
		// They go on above all that was handed out, also if the database is set back to a moment before there were such tags.
		fault: "tags are deleted, and made again", in: []setup{kv, inMySQL}, fails: callers.Refused(bus.UnknownTag),
		strike: func(in *installation) {
			for round := range 3 {
				in.ahead(1000)
				if in.mysql {
					in.backUp()
				}
				in.leaf("tag", "rm", order, "--yes")
				in.leaf("tag", "rm", coupon, "--yes")
				if in.mysql && round > 0 {
					in.sql("DELETE FROM saved_leaf_alloc WHERE biz_tag = 'order'", "DELETE FROM saved_leaf_mark")
					in.setBack()
				}
				if round > 1 {
					in.refused(order, 1, bus.UnknownTag, "")
				}
				in.leaf("tag", "add", order, "--step", "100")
				in.leaf("tag", "add", coupon, "--opaque=53", "--step", "100")
			}
			in.ahead(1000)
		},
	},
	{
		// Also after a deletion, and whichever generator is asked: one that is cut off could still answer from memory.
		fault: "a name is to get another order or kind", in: []setup{kv, inMySQL}, tags: none,
		strike: func(in *installation) {
			kinds := []string{"", `,"order":"strict"`, `,"opaque":"53"`, `,"opaque":"63"`}
			for i, kind := range kinds {
				tag := fmt.Sprint("tag", i)
				kit.Must(in.T, in.create(fmt.Sprintf(`{"tag":%q%s}`, tag, kind)))
				highest := in.take(tag)
				for _, state := range []string{"live", "deleted"} {
					for _, other := range append(slices.Delete(slices.Clone(kinds), i, i+1), kind) {
						err := in.create(fmt.Sprintf(`{"tag":%q%s}`, tag, other))
						wrong := other != kind && !is(err, bus.Conflict)
						if wrong || other == kind && state == "live" && !is(err, bus.Exists) {
							in.Errorf("%q with the name of a %s %q: %v", other, state, kind, err)
						}
					}
					if id := in.take(tag); id <= highest && i < 2 { // the deleted one was made again
						in.Errorf("ID %d came after %d of %q", id, highest, kind)
					}
					in.leaf("tag", "rm", tag, "--yes")
				}
			}
		},
	},
}
