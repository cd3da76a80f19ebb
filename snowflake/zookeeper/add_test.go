package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/kit"
)

// The number of a node is its worker, counted from the low end of the range. So a worker whose node was deleted, and whose
// holder does not know it yet, does not come again soon. The data are Leaf's and more.
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
				"incarnation": "of " + node, "node": node, "worker": float64(low + i),
			} {
				if got[field] != want {
					t.Errorf("%s is %v, want %v", field, got[field], want)
				}
			}
		}
		for name := range s.children(t, s.path("leaf_forever")) {
			s.remove(t, s.path("leaf_forever", name))
		}
		e, err := s.claimed(t, "late").Add(within(t), holder("late"), snowflake.Choice{First: low, Last: low + 31})
		if err != nil || e.Worker != low+3 {
			t.Errorf("Add after all nodes were deleted: %+v, %v; want worker %d", e, err, low+3)
		}
	}
}

// Of two nodes of one worker the older counts, whatever their names.
func TestYoungerNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	r := s.claimed(t, "b")
	older := add(t, r, "b")
	s.create(t, s.path("leaf_forever", "a-0000000009"), `{"node":"a","incarnation":"x","reserved_until":5,"worker":0}`)
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
