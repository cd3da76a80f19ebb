package zookeeper

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/kit"
)

// An address that leads to another ZooKeeper, with nodes of the same names, is noticed with each call: nothing is
// read or written there.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	s, behind, p := newProxied(t, kit.NewZooKeeper(t).Addr())
	there := newSite(t, kit.ZooKeeperHosts(t))
	there.name = s.name
	add(t, there.claimed(t, "x"), "a")
	r := newKeeper(t, behind)
	r.reports()
	before := there.children(t, there.path("leaf_forever"))

	p.Lead(there.hosts)
	for name, call := range map[string]func(context.Context) error{
		"List": func(ctx context.Context) error { _, err := r.List(ctx); return err },
		"Add":  func(ctx context.Context) error { _, err := r.Add(ctx, holder("a"), anyWorker); return err },
		"Put":  func(ctx context.Context) error { _, err := r.Put(ctx, r.own.Record, r.own.Version); return err },
	} {
		testkit.Eventually(t, name+" is refused elsewhere", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			err := call(ctx)
			if err == nil || errors.Is(err, snowflake.ErrConflict) {
				t.Fatalf("%s was done elsewhere: %v", name, err)
			}
			return errors.Is(err, errElsewhere)
		})
	}
	if after := there.children(t, there.path("leaf_forever")); !maps.Equal(after, before) {
		t.Errorf("there are %v, there were %v", after, before)
	}

	p.Lead(s.hosts)
	r.holds(s)
}
