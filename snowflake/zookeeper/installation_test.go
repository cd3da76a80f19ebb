package zookeeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

var ours = Installation{ID: "ours", Layout: snowflake.DefaultLayout()}

func TestClaim(t *testing.T) {
	s := newSite(t, server.Hosts(t))
	first, err := s.open(t, "a").Claim(within(t), ours, "")
	if err != nil || first.ID != "ours" || first.ZooKeeper == "" || first.Layout != ours.Layout {
		t.Fatalf("Claim: %+v, %v", first, err)
	}
	theirs := ours
	theirs.ID = "theirs"
	for _, want := range []Installation{ours, theirs} {
		for _, known := range []string{"", first.ZooKeeper} {
			if again, err := s.open(t, "b").Claim(within(t), want, known); err != nil || again != first {
				t.Errorf("Claim for %q, known %q: %+v, %v; want %+v", want.ID, known, again, err, first)
			}
		}
	}
	if there, err := s.open(t, "c").Owner(within(t)); err != nil || there != first {
		t.Errorf("Owner: %+v, %v; want %+v", there, err, first)
	}
	// Without the node that every write looks for, nothing may be done; to make it
	// again is for a person.
	gone := s.path("installation", first.ZooKeeper)
	s.remove(t, gone)
	r := s.open(t, "d")
	if _, err := r.Claim(within(t), ours, ""); !errors.Is(err, snowflake.ErrRefused) || !strings.Contains(err.Error(), "create "+gone+" ''") {
		t.Errorf("Claim without %s: %v", gone, err)
	}
	s.create(t, gone, "")
	if _, err := r.Claim(within(t), ours, ""); err != nil {
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
	s := newSite(t, server.Hosts(t))
	got := make([]Installation, 8)
	var wg sync.WaitGroup
	for i := range got {
		r := s.open(t, "a")
		wg.Go(func() {
			want := ours
			want.ID = fmt.Sprint("installation-", i)
			var err error
			if got[i], err = r.Claim(within(t), want, ""); err != nil {
				t.Errorf("Claim: %v", err)
			}
		})
	}
	wg.Wait()
	for _, other := range got {
		if other != got[0] || other.ID == "" {
			t.Fatalf("two installations: %+v", got)
		}
	}
	if ids := s.children(t, s.path("installation")); len(ids) != 1 {
		t.Errorf("several IDs: %v", ids)
	}
}

func TestClaimRefused(t *testing.T) {
	for name, c := range map[string]struct {
		there, known string // the record, and which ZooKeeper is wanted
		want         Installation
		say          string
	}{
		"nobody's":         {"", "Z", ours, `create /leaf/NAME/installation '{"id":"ours","zookeeper":"Z",`},
		"another":          {`{"id":"ours","zookeeper":"Y"}`, "Z", ours, "another ZooKeeper"},
		"no JSON":          {`ours`, "", ours, "damaged"},
		"no ID":            {`{"zookeeper":"Z"}`, "", ours, "damaged"},
		"no ZooKeeper":     {`{"id":"ours"}`, "", ours, "damaged"},
		"a path for an ID": {`{"id":"ours","zookeeper":"Z/.."}`, "", ours, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, server.Hosts(t))
			if c.there != "" {
				s.folders(t)
				s.create(t, s.path("installation"), c.there)
				s.create(t, s.path("installation", "Y"), "")
			}
			r := s.open(t, "a")
			_, err := r.Claim(within(t), c.want, c.known)
			if !errors.Is(err, snowflake.ErrRefused) || !strings.Contains(strings.ReplaceAll(err.Error(), s.name, "NAME"), c.say) {
				t.Errorf("Claim: %v; want %q", err, c.say)
			}
			if c.there == "" && s.children(t, s.path()) != nil {
				t.Error("something was made")
			}
			if _, err := r.Owner(within(t)); c.there == "" && !errors.Is(err, ErrNobodys) {
				t.Errorf("Owner: %v", err)
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

func TestClaimOtherLayout(t *testing.T) {
	s := newSite(t, server.Hosts(t))
	s.claimed(t, "a")
	other := ours
	other.Epoch++
	if _, err := s.open(t, "b").Claim(within(t), other, ""); !errors.Is(err, snowflake.ErrRefused) || !strings.Contains(err.Error(), "--epoch") {
		t.Errorf("Claim: %v", err)
	}
}

// What a refusal says to enter does what it promises.
func TestNobodysAdvice(t *testing.T) {
	s := newSite(t, server.Hosts(t))
	_, err := s.open(t, "a").Claim(within(t), ours, "Z")
	if err == nil {
		t.Fatal("not refused")
	}
	_, advice, _ := strings.Cut(err.Error(), "zkCli.sh:\n")
	for command := range strings.SplitSeq(advice, "\n") {
		command, text, _ := strings.Cut(strings.TrimSuffix(command, "'"), " '")
		where, ok := strings.CutPrefix(command, "create ")
		if !ok || text != "" && !json.Valid([]byte(text)) {
			t.Fatalf("the advice is %q in %v", command, err)
		}
		if where != rootFolder {
			s.create(t, where, text)
		}
	}
	if have, err := s.open(t, "b").Claim(within(t), ours, "Z"); err != nil || have.ID != "ours" || have.ZooKeeper != "Z" {
		t.Errorf("Claim: %+v, %v", have, err)
	}
}
