package generator_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// heldDisk is a disk whose syncs wait while it is locked.
type heldDisk struct {
	*snowflaketest.Disk
	sync.Mutex
}

func (d *heldDisk) Sync() error {
	d.Lock()
	defer d.Unlock()
	return d.Disk.Sync()
}

// A disk so slow that the ceiling is reached: requests get the IDs of another generator. If that lasts, the generator
// leaves the queue group.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := newClock()
	registry := snowflaketest.NewMemory()
	disk := &heldDisk{Disk: snowflaketest.NewDisk()}
	a, _ := startIn(t, s, "a", "one", memory(t), func(cfg *generator.Config) {
		on(c, registry)(cfg)
		cfg.Snowflake.File = newFile(t, disk)
	})
	startIn(t, s, "b", "one", memory(t), on(newClock(), registry))
	allAnswer(t, nc, 2)
	testkit.Eventually(t, "a hears b", func() bool { return a.Hears("b") })

	disk.Lock()
	free := sync.OnceFunc(disk.Unlock)
	defer free()
	for range 4 {
		c.pass(505 * time.Millisecond) // in steps that are no standstill
		a.State()
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience/2)
	defer cancel()
	ranges, err := a.Snowflakes(ctx, 1)
	if err != nil {
		t.Fatalf("while b can serve: %v", err)
	}
	if p := parts(t, ranges[0].String()); p.Worker != 1 {
		t.Errorf("the ID is of worker %d, want that of b", p.Worker)
	}
	for range 20 {
		flake(t, nc)
	}
	c.pass(100 * time.Millisecond)
	testkit.Eventually(t, "it leaves", func() bool { return slices.Equal(serving(t, nc), []string{"b"}) })
	free()
	testkit.Eventually(t, "it returns", func() bool { return slices.Equal(serving(t, nc), []string{"a", "b"}) })
	allAnswer(t, nc, 2)
}
