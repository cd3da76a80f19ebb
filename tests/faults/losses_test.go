package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// losses are losses of LEAF_TAGS, and what must be known after them.
var losses = []scenario{
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

// restore runs leaf restore until it has compared the records with what generators know.
func (in *installation) restore(file string) {
	in.Helper()
	testkit.Eventually(in.T, "a restore", func() bool {
		r := kit.Leaf(in.T, "restore", file, "-s", in.url)
		return r.Status == 0 || strings.Contains(r.Stderr, "missing")
	})
}

// last is the last claim in a tag's record.
func (in *installation) last(tag string) allocator.Claim {
	in.Helper()
	var r struct{ Last allocator.Claim }
	kit.Must(in.T, json.Unmarshal([]byte(in.record(tag)), &r))
	return r.Last
}
