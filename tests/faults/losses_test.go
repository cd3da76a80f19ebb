package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

// losses are losses of LEAF_TAGS, and what must be known after them.
var losses = []scenario{
	{
		// The database and the generators know enough for tags in trend order. For others somebody may know more.
		fault: "the tags are lost, and a backup is restored", in: []setup{inMySQL}, tags: []string{order, snowflakes},
		flags: []string{"--max-wait", "1s"}, fails: once, alert: "records.unavailable.n0",
		strike: func(in *installation) {
			file := filepath.Join(in.TempDir(), "leaf.backup")
			in.leaf("tag", "set", order, "--limit", "4000000000000000")
			in.leaf("backup", file)
			in.ahead(2000)
			last := in.take(invoice)
			in.take(coupon)
			kit.Must(in.T, in.js.DeleteKeyValue(in.Context(), wire.BucketTags))
			in.alerted("records.unavailable.n0", "n0")
			in.ahead(3000)
			in.stop(1)
			in.begin(1)
			in.ahead(3000)
			in.refused(invoice, 1, bus.StoreUnavailable, "")
			in.refused(coupon, 5000, bus.StoreUnavailable, "")
			if r := in.record(order); !strings.Contains(r, `"limit":"4000000000000000"`) {
				in.Errorf("the limit is gone: %s", r)
			}
			in.leaf("restore", file)
			in.leaf("tag", "set", invoice, "--max-id", fmt.Sprint(last+1))
			in.above(invoice, last+1)
			in.take(coupon)
			in.ready(2)
		},
	},
	{
		// One that was away has both names in --tag. It may create neither: another one knows more.
		fault: "the tags are lost, and a generator with --tag starts", in: []setup{kv}, tags: none,
		flags: []string{"--max-wait", "1s"},
		strike: func(in *installation) {
			const late = "late"
			args := append(in.nodes[0].Arguments(), "--tag", late+":100")
			in.leaf("tag", "add", late, "--step", "100")
			in.take(order)
			in.stop(0)
			in.leaf("get", late, "-n", "100000")
			highest := in.take(late)
			kit.Must(in.T, in.js.DeleteKeyValue(in.Context(), wire.BucketTags))
			in.nodes[0] = kit.Begin(in.T, in.nodes[0].Dir, args...)
			in.refused(order, 1000, bus.StoreUnavailable, "")
			in.refused(late, 1000, bus.StoreUnavailable, "")
			if err := in.create(`{"tag":"late"}`); !is(err, bus.StoreUnavailable) {
				in.Errorf("a tag is created: %v", err)
			}
			kit.Leaf(in.T, "tag", "advance", "--all", "-s", in.url).Want(in.T, 1, late+" is missing", order+" is missing")
			for _, add := range [][]string{{late}, {order}, {idle}, {invoice, "--order", "strict"}, {coupon, "--opaque=53"}} {
				in.leaf(append([]string{"tag", "add", "--max-id", "2"}, add...)...) // late's is a mistake
			}
			in.leaf("tag", "advance", "--all")
			in.above(late, highest+1)
			in.ready(2)
		},
	},
	{
		// What a generator heard of another one is in its folder, and not only what it claimed.
		fault: "a backup is restored, and who claimed last is gone", in: []setup{embedded}, tags: none,
		strike: func(in *installation) {
			file := filepath.Join(in.TempDir(), "leaf.backup")
			in.leaf("backup", file)
			in.take(order)
			other := in.join()
			in.stop(0)
			in.again(0)
			in.leaf("get", order, "-n", "20000")
			highest := in.take(order)
			in.stop(other)
			in.stop(0)
			kit.Must(in.T, os.RemoveAll(filepath.Join(in.nodes[0].Data, "nats")))
			in.begin(0)
			in.lacking(1, "store", "")
			in.restore(file)
			in.above(order, highest+1)
			in.leaf("tag", "advance", "--all", "--without", fmt.Sprint("n", other))
			in.above(order, highest+1)
		},
	},
	{
		// Memory is to last as long after a restart as before it.
		fault: "a generator that has learnt its step starts again", in: []setup{mysqlAlone, kvAlone}, tags: none,
		flags: []string{"--max-step", "100000"},
		strike: func(in *installation) {
			learnt := int64(0)
			testkit.Eventually(in.T, "a step of 3000", func() bool {
				in.answered(100, in.send(100, "50", order))
				learnt = in.last(order).Step
				return learnt >= 3000
			})
			for _, end := range []func(int){in.stop, in.kill} {
				end(0)
				run := in.last(order).Run
				in.again(0)
				in.leaf("get", order)
				testkit.Eventually(in.T, "a claim of the new run", func() bool { return in.last(order).Run != run })
				if c := in.last(order); c.Last-c.First+1 < learnt {
					in.Errorf("the first range after a start is %d to %d, and the one before had %d", c.First, c.Last, learnt)
				}
			}
		},
	},
}

// last is the last claim in a tag's record.
func (in *installation) last(tag string) allocator.Claim {
	in.Helper()
	var r struct{ Last allocator.Claim }
	kit.Must(in.T, json.Unmarshal([]byte(in.record(tag)), &r))
	return r.Last
}
