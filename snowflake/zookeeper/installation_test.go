package zookeeper

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/kit"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	if of, id, err := s.open(t, "a").Claim(within(t), "ours", false); of != "" || id != "" || err != nil {
		t.Errorf("Claim of what belongs to nobody, without first: %q, %q, %v", of, id, err)
	}
	if s.children(t, s.path()) != nil {
		t.Error("something was made")
	}
	of, first, err := s.open(t, "a").Claim(within(t), "ours", true)
	if err != nil || of != "ours" || first == "" {
		t.Fatalf("Claim: %q, %q, %v", of, first, err)
	}
	for _, installation := range []string{"ours", "theirs", ""} {
		for _, again := range []bool{false, true} {
			r := s.open(t, "b")
			if of, id, err := r.Claim(within(t), installation, again); err != nil || of != "ours" || id != first {
				t.Errorf("Claim for %q, first %v: %q, %q, %v", installation, again, of, id, err)
			}
			if _, err := r.List(within(t)); (err == nil) != (installation == "ours") {
				t.Errorf("List of %q: %v", installation, err)
			}
		}
	}
	// Without the node that every write looks for, nothing may be done; to make it
	// again is for a person.
	gone := s.path("installation", first)
	s.remove(t, gone)
	r := s.open(t, "d")
	if _, _, err := r.Claim(within(t), "ours", false); !errors.Is(err, snowflake.ErrRefused) || !strings.Contains(err.Error(), "create "+gone+" ''") {
		t.Errorf("Claim without %s: %v", gone, err)
	}
	s.create(t, gone, "")
	if _, _, err := r.Claim(within(t), "ours", false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Add(within(t), holder("d"), anyWorker); err != nil {
		t.Errorf("Add: %v", err)
	}
	s.remove(t, gone)
	if _, err := r.Add(within(t), holder("d"), anyWorker); !errors.Is(err, errElsewhere) {
		t.Errorf("Add without %s: %v", gone, err)
	}
}

func TestClaimAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	type answer struct{ of, id string }
	got := make([]answer, 8)
	var wg sync.WaitGroup
	for i := range got {
		r := s.open(t, "a")
		wg.Go(func() {
			var err error
			if got[i].of, got[i].id, err = r.Claim(within(t), fmt.Sprint("installation-", i), true); err != nil {
				t.Errorf("Claim: %v", err)
			}
		})
	}
	wg.Wait()
	for _, other := range got {
		if other != got[0] || other.of == "" || other.id == "" {
			t.Fatalf("two installations: %+v", got)
		}
	}
	if ids := s.children(t, s.path("installation")); len(ids) != 1 {
		t.Errorf("several IDs: %v", ids)
	}
}

// What cannot be a record is refused, and nothing works before a Claim.
func TestClaimDamaged(t *testing.T) {
	t.Parallel()
	for name, there := range map[string]string{
		"no JSON":          `ours`,
		"no ID":            `{"zookeeper":"Z"}`,
		"no ZooKeeper":     `{"id":"ours"}`,
		"a path for an ID": `{"id":"ours","zookeeper":"Z/.."}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, kit.ZooKeeperHosts(t))
			s.folders(t)
			s.create(t, s.path("installation"), there)
			r := s.open(t, "a")
			if _, _, err := r.Claim(within(t), "ours", true); !errors.Is(err, snowflake.ErrRefused) || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("Claim: %v", err)
			}
			if _, err := r.List(within(t)); !errors.Is(err, errUnclaimed) {
				t.Errorf("List: %v", err)
			}
			if _, err := r.Add(within(t), holder("a"), anyWorker); !errors.Is(err, errUnclaimed) {
				t.Errorf("Add: %v", err)
			}
		})
	}
}

// What the lists of rights forbid stays until an operator changes them.
func TestClaimForbidden(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	if _, err := s.admin.Create(rootFolder, nil, 0, open); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		t.Fatal(err)
	}
	if _, err := s.admin.Create(s.path(), nil, 0, zk.WorldACL(zk.PermRead)); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.open(t, "a").Claim(within(t), "ours", true)
	if !errors.Is(err, snowflake.ErrMisconfigured) || !strings.Contains(err.Error(), "setAcl") {
		t.Errorf("Claim: %v", err)
	}
}

// A server of an ensemble may be behind the others. That it does not know the installation's record yet, or a worker's,
// is no reason to refuse a generator: it is asked to catch up first.
func TestReadsAreSynced(t *testing.T) {
	t.Parallel()
	_, behind, p := newProxied(t, kit.ZooKeeperHosts(t))
	add(t, behind.claimed(t, "a"), "a")
	const get, exists, catchUp, getChildren = 4, 3, 9, 12
	var mu sync.Mutex
	var asked []uint32
	p.OnRequest(func(packet []byte) kit.Action {
		mu.Lock()
		defer mu.Unlock()
		if isRequest(packet) {
			asked = append(asked, binary.BigEndian.Uint32(packet[8:]))
		}
		return kit.Forward
	})
	r := behind.claimed(t, "b")
	_, err := r.List(within(t))
	mu.Lock()
	defer mu.Unlock()
	if want := []uint32{catchUp, get, exists, catchUp, getChildren, get}; err != nil || !slices.Equal(asked, want) {
		t.Errorf("a Claim and a List asked %v, want %v; %v", asked, want, err)
	}
}

func TestClaimOtherLayout(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	s.claimed(t, "a")
	r := s.open(t, "b")
	r.cfg.Layout.Epoch++
	if _, _, err := r.Claim(within(t), "test", false); !errors.Is(err, snowflake.ErrRefused) || !strings.Contains(err.Error(), "--epoch") {
		t.Errorf("Claim: %v", err)
	}
}

// What Repair says to type does what it promises.
func TestRepair(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	for command := range strings.SplitSeq(s.open(t, "a").Repair("ours", "Z"), "\n") {
		command, text, _ := strings.Cut(strings.TrimSuffix(command, "'"), " '")
		where, ok := strings.CutPrefix(command, "create ")
		if !ok || text != "" && !json.Valid([]byte(text)) {
			t.Fatalf("the command is %q", command)
		}
		if _, err := s.admin.Create(where, []byte(text), 0, open); err != nil && where != rootFolder { // which others made
			t.Fatalf("%s: %v", where, err)
		}
	}
	if of, id, err := s.open(t, "b").Claim(within(t), "ours", false); err != nil || of != "ours" || id != "Z" {
		t.Errorf("Claim: %q, %q, %v", of, id, err)
	}
}
