package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// tags are what operators do to tags beside generators that serve them.
var tags = []scenario{
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
