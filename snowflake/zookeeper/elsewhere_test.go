package zookeeper

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/proxy"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// An address that leads to another ZooKeeper, with nodes of the same names, is
// noticed with each call: nothing is read or written there.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, server.New(t).Addr())
	there := newSite(t, server.Hosts(t))
	there.name = s.name
	// A server refuses clients that have seen more transactions than itself.
	for folder := there.path("more"); ; {
		there.folders(t)
		there.create(t, folder, "")
		_, stat, err := there.admin.Get(folder)
		if err != nil {
			t.Fatal(err)
		}
		there.remove(t, folder)
		if stat.Czxid > 1000 {
			break
		}
	}
	if _, err := there.claimed(t, "x").Add(within(t), holder("a"), anyWorker); err != nil {
		t.Fatal(err)
	}
	p, err := proxy.Start(s.hosts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	behind := *s
	behind.hosts = p.Addr()
	r := behind.claimed(t, "a")
	e, err := r.Add(within(t), holder("a"), anyWorker)
	if err != nil {
		t.Fatal(err)
	}
	before := there.children(t, there.path("leaf_forever"))

	p.Lead(there.hosts)
	p.Cut()
	calls := map[string]func(context.Context) error{
		"List": func(ctx context.Context) error { _, err := r.List(ctx); return err },
		"Add":  func(ctx context.Context) error { _, err := r.Add(ctx, holder("a"), anyWorker); return err },
		"Put":  func(ctx context.Context) error { _, err := r.Put(ctx, e.Record, e.Version); return err },
	}
	for name, call := range calls {
		testkit.Eventually(t, name+" is refused elsewhere", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			err := call(ctx)
			if err == nil {
				t.Fatalf("%s was done elsewhere", name)
			}
			return errors.Is(err, errElsewhere)
		})
	}
	if after := there.children(t, there.path("leaf_forever")); !maps.Equal(after, before) {
		t.Errorf("there are %v, there were %v", after, before)
	}

	p.Lead(s.hosts)
	p.Cut()
	testkit.Eventually(t, "it works where it belongs", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		entries, err := r.List(ctx)
		if err == nil && len(entries) == 1 {
			e = entries[0] // what was asked before may have been done late
		}
		return err == nil
	})
	report(t, r, &e)
}
