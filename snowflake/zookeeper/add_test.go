package zookeeper

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/kit"
)

// The number of a node is its worker, counted from the low end of the range, and its data are Leaf's and more.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, low := range []int64{0, 512} {
		s := newSite(t, kit.ZooKeeperHosts(t))
		for i := range int64(3) {
			node := fmt.Sprint("n", i)
			e, err := s.claimed(t, node).Add(within(t), holder(node), snowflake.Choice{First: low, Last: low + 31})
			if err != nil || e.Worker != low+i {
				t.Fatalf("Add: %+v, %v; want worker %d", e, err, low+i)
			}
			got := parse[map[string]any](t, s.children(t, s.path("leaf_forever"))[fmt.Sprintf("%s-%010d", node, i)])
			for field, want := range map[string]any{
				"ip": "127.0.0.1", "port": "4222", "timestamp": 1_700_000_000_001., "reserved_until": 1_800_000_000_000.,
				"incarnation": "of " + node, "node": node,
			} {
				if got[field] != want {
					t.Errorf("%s is %v, want %v", field, got[field], want)
				}
			}
		}
	}
}

// Generators of ranges that overlap count their numbers from different ends: two numbers may make one worker.
func TestRangesOverlap(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	var mu sync.Mutex
	holders := make(map[int64]string)
	var wg sync.WaitGroup
	for i, c := range []snowflake.Choice{{First: 0, Last: 19}, {First: 10, Last: 29}, {First: 5, Last: 5}, {First: 15, Last: 24}} {
		node := fmt.Sprint("n", i)
		r := s.claimed(t, node)
		wg.Go(func() {
			for {
				e, err := r.Add(within(t), holder(node), c)
				if errors.Is(err, snowflake.ErrFull) {
					return
				}
				if err != nil || !c.Allows(e.Worker) {
					t.Errorf("Add of %+v: %+v, %v", c, e, err)
					return
				}
				mu.Lock()
				if first, ok := holders[e.Worker]; ok {
					t.Errorf("worker %d went to %s and to %s", e.Worker, first, node)
				}
				holders[e.Worker] = node
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if made := len(s.children(t, s.path("leaf_forever"))); len(holders) != 30 || made != 30 {
		t.Errorf("%d workers of 30, %d nodes", len(holders), made)
	}
}

// Of two nodes of one worker the older counts, whatever their names.
func TestYoungerNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	r := s.claimed(t, "b")
	older := add(t, r, "b")
	s.create(t, s.path("leaf_forever", "a-0000000009"), `{"node":"a","incarnation":"x","reserved_until":5,"base":-9}`)
	for range 3 {
		if got, err := r.List(within(t)); err != nil || len(got) != 1 || got[0] != older {
			t.Fatalf("List: %+v, %v; want %+v", got, err, older)
		}
		report(t, r, &older)
	}
}

// A node that was deleted and made again, with all its folder, has none of the versions that it had.
func TestMadeAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	r := s.claimed(t, "a")
	e := add(t, r, "a")
	s.wipe(t, s.path("leaf_forever"))
	again := add(t, r, "a")
	if _, err := r.Put(within(t), e.Record, e.Version); !errors.Is(err, snowflake.ErrConflict) || again.Version == e.Version {
		t.Errorf("Put on version %d, and it is %d: %v", e.Version, again.Version, err)
	}
	report(t, r, &again)
}

// While nobody knows whose worker a damaged node is, none is added; what is known goes on.
func TestDamagedNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	r := s.claimed(t, "a")
	e := add(t, r, "a")
	damaged := s.path("leaf_forever", "b-0000000001")
	s.create(t, damaged, `{"node":"b"`)
	s.create(t, s.path("leaf_forever", "notes"), "by hand")
	other := s.claimed(t, "c")
	if _, err := other.Add(within(t), holder("c"), anyWorker); err == nil || !strings.Contains(err.Error(), damaged) {
		t.Errorf("Add: %v; want %s named", err, damaged)
	}
	if got, err := other.List(within(t)); err != nil || len(got) != 1 || got[0] != e {
		t.Errorf("List: %+v, %v; want %+v", got, err, e)
	}
	report(t, r, &e)
	s.remove(t, damaged)
	if e := add(t, other, "c"); e.Worker == 0 {
		t.Errorf("Add: %+v", e)
	}
	// A record that is damaged under its holder is no longer its.
	if _, err := s.admin.Set(s.path("leaf_forever", "a-0000000000"), []byte("x"), -1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Put(within(t), e.Record, e.Version); !errors.Is(err, snowflake.ErrConflict) {
		t.Errorf("Put: %v", err)
	}
}

// A node is damaged between the two looks of one that adds its own: whose worker it has is not known, so the one
// that was made is not kept.
func TestDamagedMeanwhile(t *testing.T) {
	t.Parallel()
	s, behind, p := newProxied(t, kit.ZooKeeperHosts(t))
	add(t, s.claimed(t, "b"), "b")
	r := behind.claimed(t, "a")
	damaged := s.path("leaf_forever", "b-0000000000")
	p.OnRequest(func(packet []byte) kit.Action {
		if bytes.Contains(packet, []byte(s.path("leaf_forever", "a-"))) {
			if _, err := s.admin.Set(damaged, []byte("x"), -1); err != nil {
				t.Error(err)
			}
		}
		return kit.Forward
	})
	if e, err := r.Add(within(t), holder("a"), anyWorker); err == nil || !strings.Contains(err.Error(), damaged) {
		t.Errorf("Add: %+v, %v; want %s named", e, err, damaged)
	}
	if made := s.children(t, s.path("leaf_forever")); len(made) != 1 {
		t.Errorf("nodes: %v", made)
	}
}

// A caller that has left gets no worker: its record would keep the worker from others.
func TestAddAfterTheCallerLeft(t *testing.T) {
	t.Parallel()
	s, behind, p := newProxied(t, kit.ZooKeeperHosts(t))
	r := behind.claimed(t, "a")
	ctx, cancel := context.WithCancel(within(t))
	p.OnRequest(func(packet []byte) kit.Action {
		for len(packet) >= 12 { // a ping may be before it
			const getChildren = 12
			if binary.BigEndian.Uint32(packet[8:]) == getChildren {
				cancel()
			}
			packet = packet[min(len(packet), 4+int(binary.BigEndian.Uint32(packet))):]
		}
		return kit.Forward
	})
	if _, err := r.Add(ctx, holder("a"), anyWorker); !errors.Is(err, context.Canceled) {
		t.Errorf("Add: %v", err)
	}
	r.link.busy <- struct{}{} // until the request has really ended
	<-r.link.busy
	if all := s.children(t, s.path("leaf_forever")); len(all) > 0 {
		t.Errorf("the records are %v", all)
	}
}
