package kvstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// ZooKeeper notes that the records of the workers from First to Last are in one
// ZooKeeper. There may be one in each data centre: what counts is that no
// worker is in two.
type ZooKeeper struct {
	ID           string `json:"id"`           // of the ZooKeeper
	Name         string `json:"name"`         // where it was first; for people
	Installation string `json:"installation"` // that it belongs to
	First        int64  `json:"first"`
	Last         int64  `json:"last"`
}

func (z ZooKeeper) overlaps(other ZooKeeper) bool {
	return z.First <= other.Last && other.First <= z.Last
}

// ZooKeeper returns what is noted of one of the workers from first to last.
func (i *Installation) ZooKeeper(first, last int64) (z ZooKeeper, ok bool) {
	for _, z := range i.ZooKeepers {
		if z.overlaps(ZooKeeper{First: first, Last: last}) {
			return z, true
		}
	}
	return z, false
}

// PinZooKeeper notes, by compare-and-set, which ZooKeeper has the workers of
// want. An error that matches [allocator.ErrRefused] says that some are in another.
func PinZooKeeper(ctx context.Context, cfg Config, want ZooKeeper) (Installation, error) {
	return change(ctx, cfg, func(have *Installation) error {
		var kept []ZooKeeper
		whole := want
		for _, z := range have.ZooKeepers {
			switch {
			case z.ID == want.ID && z.First <= whole.Last+1 && whole.First <= z.Last+1: // one with it
				whole.First, whole.Last, whole.Name = min(z.First, whole.First), max(z.Last, whole.Last), z.Name
			case z.ID != want.ID && z.overlaps(want):
				return fmt.Errorf("%w: installation %s keeps the workers from %d to %d in another ZooKeeper (%s, which has the ID %s; this is %s, %s), "+
					"and this generator may take those from %d to %d: two would get the same worker. Name that one with --zookeeper and --zookeeper-name, "+
					"on every generator, or give this one workers of its own (--worker-range, --datacenter). If that one was a mistake, or is gone for good, and what its workers reserved "+
					"is over, remove it from `zookeepers` in the record (bucket %s, key %s)",
					allocator.ErrRefused, have.ID, z.First, z.Last, z.Name, z.ID, want.Name, want.ID, want.First, want.Last, bus.BucketInstallation, installationKey)
			default:
				kept = append(kept, z)
			}
		}
		have.ZooKeepers = append(kept, whole)
		slices.SortFunc(have.ZooKeepers, func(x, y ZooKeeper) int { return cmp.Compare(x.First, y.First) })
		return nil
	})
}
