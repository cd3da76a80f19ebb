package faults

import (
	"cmp"
	"path/filepath"
	"strings"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

// later is a tag that is created after the backup.
const later = "later"

// backups are losses after which an operator does what docs/operate.md says.
var backups = []scenario{
	{
		// What was claimed after the backup is known by generators, and by events.
		fault: "all records are lost, and a backup is restored", in: []setup{kv, inMySQL}, tags: none,
		strike: func(in *installation) {
			file := filepath.Join(in.TempDir(), "leaf.backup")
			in.leaf("backup", file)
			kit.Must(in.T, cmp.Or(in.create(`{"tag":"later","step":100}`), in.create(`{"tag":"late","order":"strict"}`)))
			highest := make(map[string]int64)
			for _, tag := range []string{order, invoice, coupon, later} {
				in.leaf("get", tag, "-n", "2000")
				highest[tag] = in.take(tag)
			}
			in.each(in.stop)
			in.loseRecords()
			in.each(in.begin) // they wait, and know what their folders know
			in.lacking(2, "store", "")
			r := in.restore(file)
			r.Want(in.T, 1, "late is missing", "leaf tag add late --order strict --max-id N")
			if behind, missing := strings.Contains(r.Stdout, order+" was behind"), strings.Contains(r.Stderr, "later is missing"); !behind || missing == in.mysql {
				in.Errorf("leaf restore says:\n%s%s", r.Stdout, r.Stderr)
			}
			if err := in.create(`{"tag":"late","order":"strict"}`); !is(err, bus.Conflict) {
				in.Errorf("a lost strict tag is created: %v", err)
			}
			in.leaf("tag", "add", "late", "--order", "strict", "--max-id", "5000")
			in.leaf("tag", "set", invoice, "--max-id", "5000")
			if !in.mysql {
				in.leaf("tag", "add", later)
			}
			for tag, id := range highest {
				if tag != coupon { // its IDs are in no order
					in.above(tag, id+1)
				}
			}
			in.take(coupon)
			if found := in.audit(); len(found) > 0 {
				in.Errorf("leaf audit finds %+v", found)
			}
			in.ready(2)
			in.restore(file).Want(in.T, 0)

			// A restore does not need generators. Then it cannot compare.
			in.each(in.stop)
			in.loseRecords()
			kit.Leaf(in.T, "restore", file, "-s", in.url).Want(in.T, 0, "no generator is heard")
			in.each(in.begin)
			in.ready(2)
			in.restore(file)
			in.above(order, highest[order]+1)
		},
	},
}

// loseRecords deletes all buckets, while no generator runs.
func (in *installation) loseRecords() {
	in.Helper()
	for _, bucket := range []string{wire.BucketInstallation, wire.BucketTags, wire.BucketWorkers, wire.BucketKeys} {
		kit.Must(in.T, in.js.DeleteKeyValue(in.Context(), bucket))
	}
}

// restore runs leaf restore until it has compared the records with what generators know.
func (in *installation) restore(file string) (r kit.Result) {
	in.Helper()
	testkit.Eventually(in.T, "a restore", func() bool {
		r = kit.Leaf(in.T, "restore", file, "-s", in.url)
		return r.Status == 0 || strings.Contains(r.Stderr, "missing")
	})
	return r
}
