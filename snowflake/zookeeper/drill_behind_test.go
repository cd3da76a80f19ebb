//go:build drills

package zookeeper

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/proxy"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// A server of an ensemble is behind the others: it has stood still, and much was
// written meanwhile. That it does not know the installation's record yet is no
// reason to refuse a generator.
func TestDrillClaimBehind(t *testing.T) {
	e := server.NewEnsemble(t)
	leader, err := e.Leader()
	if err != nil {
		t.Fatal(err)
	}
	follower := e.Servers[slices.IndexFunc(e.Servers[:], func(s *server.Server) bool { return s != leader })]
	_, behind, p := newProxied(t, follower.Addr())
	s := newSite(t, leader.Addr())
	s.name = behind.name
	s.folders(t)
	r := behind.open(t, "b")
	if of, _, err := r.Claim(within(t), "ours", false); of != "" || err != nil {
		t.Fatalf("it belongs to %q, %v", of, err)
	}

	if err := follower.Freeze(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		var much []any
		for j := range 100 {
			much = append(much, &zk.CreateRequest{Path: s.path(fmt.Sprintf("n%d-%d", i, j)), Data: bytes.Repeat([]byte("x"), 4000), Acl: open})
		}
		if _, err := s.admin.Multi(much...); err != nil {
			t.Fatal(err)
		}
	}
	_, first, err := s.open(t, "a").Claim(within(t), "ours", true)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Bool
	p.OnRequest(func(packet []byte) proxy.Action {
		if len(packet) > 12 { // a ping has so many bytes
			asked.Store(true)
		}
		return proxy.Forward
	})
	claimed := make(chan error)
	go func() {
		of, id, err := r.Claim(within(t), "ours", false)
		if err == nil && (of != "ours" || id != first) {
			err = fmt.Errorf("%w: it belongs to %q, %q", snowflake.ErrRefused, of, id)
		}
		claimed <- err
	}()
	testkit.Eventually(t, "it is asked", asked.Load)
	if err := follower.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; errors.Is(err, snowflake.ErrRefused) {
		t.Fatalf("Claim: %v", err)
	}
	testkit.Eventually(t, "it is admitted", func() bool { // at once, unless the others went on without the follower
		of, _, err := r.Claim(within(t), "ours", false)
		return err == nil && of == "ours"
	})
}
