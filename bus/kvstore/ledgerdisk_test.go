package kvstore

import (
	"errors"
	"os"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A cluster makes a bucket again, empty and with its old creation, when the disk with the only replica is
// replaced. It is not taken for one in which nothing was claimed yet.
func TestLedgerDiskReplaced(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3)
	cfg := connect(t, servers[0].ClientURL())
	cfg.Replicas = 1
	b := openReplicated(t, cfg)
	if err := b.SetSeeded(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
	raise(t, b, "order", 5001)
	info, err := b.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var home, other *member
	for _, m := range servers {
		if m.options.ServerName == info.Cluster.Leader {
			home = m
		} else {
			other = m
		}
	}
	home.stop()
	if err := os.RemoveAll(home.options.StoreDir); err != nil {
		t.Fatal(err)
	}
	home.start(t)
	again := openReplicated(t, connect(t, other.ClientURL()))
	if !again.Created.Equal(b.Created) || endOf(t, again) != 0 {
		t.Fatalf("created %v after %v, the end is %d: this test shows nothing", again.Created, b.Created, endOf(t, again))
	}
	if seeded, err := again.Seeded(testkit.Context(t)); seeded || err != nil {
		t.Errorf("it is seeded: %v, %v", seeded, err)
	}
	l := NewLedger()
	l.Use(again) // by a generator that has not looked at it since
	if _, err := l.Write(testkit.Context(t), "order", allocator.Entry{End: 11}); !errors.Is(err, errNotSeeded) {
		t.Errorf("a claim in the empty bucket: %v", err)
	}
}
