package kvstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/wire"
)

// first lets a master key be made.
func first(context.Context) (sign string, err error) { return "", nil }

// opaqueOf is the record of an opaque tag whose key k makes.
func opaqueOf(t testing.TB, k *Keys, name string, d opaque.Domain) allocator.Tag {
	t.Helper()
	tag := opaqueTag(t, name, d)
	var err error
	if tag.KeyID, err = k.Make(t.Context(), tag, first); err != nil {
		t.Fatal(err)
	}
	return tag
}

// permutation is that of a tag, which must be there.
func permutation(t testing.TB, k *Keys, tag allocator.Tag) *opaque.Permutation {
	t.Helper()
	p, err := k.Permutation(t.Context(), tag)
	if err != nil || p != k.Known(tag.Name) || p.KeyID() != tag.KeyID {
		t.Fatalf("the permutation of %s: %v", tag.Name, err)
	}
	return p
}

func loseKeys(t testing.TB, cfg Config) {
	t.Helper()
	if err := cfg.JS.DeleteStream(t.Context(), streamOf(wire.BucketKeys)); err != nil {
		t.Fatal(err)
	}
}

// Many generators make opaque tags at once. All have one master key, and give the same IDs. A name has one key in
// each domain, and no other name has it.
func TestOneMaster(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	var making sync.WaitGroup
	var all [8]*Keys
	var tags [8][3]allocator.Tag
	for i := range all {
		all[i] = NewKeys(newConfig(t, s))
		making.Go(func() {
			for j, tag := range []allocator.Tag{opaqueTag(t, "coupon", "d18"), opaqueTag(t, "coupon", "53"), opaqueTag(t, "gift", "53")} {
				var err error
				if tag.KeyID, err = all[i].Make(context.Background(), tag, first); err != nil {
					t.Error(err)
				}
				tags[i][j] = tag
			}
		})
	}
	making.Wait()
	if all[0].Known("coupon") != nil {
		t.Error("a tag without a record has a permutation")
	}
	for i, k := range all {
		if tags[i] != tags[0] {
			t.Fatalf("keys of one tag: %v and %v", tags[i], tags[0])
		}
		if id := permutation(t, k, tags[i][0]).Conceal(5); id != permutation(t, all[0], tags[0][0]).Conceal(5) {
			t.Errorf("generator %d has another ID for one number: %d", i, id)
		}
	}
	if ids := tags[0]; ids[0].KeyID == ids[1].KeyID || ids[1].KeyID == ids[2].KeyID {
		t.Errorf("two tags have one key: %v", ids)
	}
	if err := all[0].Load(t.Context(), tags[0][1]); !errors.Is(err, allocator.ErrDamaged) || all[0].Known("coupon").Domain() != "d18" {
		t.Errorf("the record of a name now has another domain: %v", err)
	}
}

// A tag whose master key is lost is refused by each generator that does not have it in memory, and nobody makes
// another one. One that has it goes on, and writes it back.
func TestLostMaster(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	old, other := NewKeys(cfg), NewKeys(newConfig(t, s))
	coupon := opaqueOf(t, old, "coupon", "53")
	gift := opaqueOf(t, old, "gift", "53")
	id := permutation(t, old, coupon).Conceal(5)
	for name, back := range map[string]func() error{
		"a look":     func() error { return old.Check(t.Context(), gift) },
		"a creation": func() error { opaqueOf(t, old, "third", "d9"); return nil },
	} {
		loseKeys(t, cfg)
		if permutation(t, old, coupon).Conceal(5) != id {
			t.Error("a generator with the key in memory has another ID for one number")
		}
		for range 2 {
			if err := other.Check(t.Context(), coupon); !errors.Is(err, allocator.ErrDamaged) || !strings.Contains(err.Error(), "LEAF_KEYS") {
				t.Errorf("without it: %v", err)
			}
			for sign, unknown := range map[string]error{"coupon is opaque": nil, "": errors.New("away")} {
				made, err := other.Make(t.Context(), gift, func(context.Context) (string, error) { return sign, unknown })
				if !errors.Is(err, allocator.ErrUnavailable) || !strings.Contains(err.Error(), sign) {
					t.Errorf("a second key is made: %q, %v", made, err)
				}
			}
			if _, err := cfg.JS.Stream(t.Context(), streamOf(wire.BucketKeys)); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("a refused creation made a bucket: %v", err)
			}
		}
		if err := back(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := NewKeys(cfg).read(t.Context()); err != nil {
			t.Errorf("after %s the key is not there: %v", name, err)
		}
		if permutation(t, NewKeys(cfg), coupon).Conceal(5) != id {
			t.Errorf("after %s there is another ID for one number", name)
		}
	}
	cfg.JS.Conn().Close()
	permutation(t, old, gift) // a key that was never used needs no JetStream
}

// A second master key, made by hand or after a loss of everything, changes no ID of a generator that has the first
// one. Nobody serves a tag with the wrong one.
func TestSecondMaster(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	old := NewKeys(cfg)
	coupon := opaqueOf(t, old, "coupon", "53")
	id := permutation(t, old, coupon).Conceal(5)
	restore := saveBucket(t, cfg, wire.BucketKeys)
	loseKeys(t, cfg)
	young := NewKeys(cfg)
	gift := opaqueOf(t, young, "gift", "53")
	permutation(t, young, gift)
	for what, err := range map[string]error{
		"a look":          old.Check(t.Context(), coupon),
		"a record of it":  old.Load(t.Context(), gift),
		"the first one":   young.Load(t.Context(), coupon),
		"after a restart": NewKeys(cfg).Check(t.Context(), coupon),
	} {
		if !errors.Is(err, allocator.ErrDamaged) || !strings.Contains(err.Error(), "LEAF_KEYS") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if made, err := old.Make(t.Context(), opaqueTag(t, "third", "53"), first); !errors.Is(err, allocator.ErrDamaged) {
		t.Errorf("a tag has a key of the second one: %s, %v", made, err)
	}
	if permutation(t, old, coupon).Conceal(5) != id || old.Known("gift") != nil || young.Known("coupon") != nil {
		t.Error("the second master key is used")
	}
	restore()
	if err := old.Check(t.Context(), coupon); err != nil || permutation(t, NewKeys(cfg), coupon).Conceal(5) != id {
		t.Errorf("after a restore: %v", err)
	}
}

// Few permutations stay in memory. A tag that had one is opaque for good.
func TestManyOpaqueTags(t *testing.T) {
	t.Parallel()
	k := NewKeys(newConfig(t, natskit.Start(t)))
	permutation(t, k, opaqueOf(t, k, "coupon", "53"))
	master := k.held()
	for i := range maxPermutations + 5 {
		tag := opaqueTag(t, fmt.Sprint("tag", i), "d9")
		tag.KeyID = opaque.KeyID(opaque.DeriveKey(master, tag.Name, "d9"))
		if err := k.Load(t.Context(), tag); err != nil {
			t.Fatal(err)
		}
	}
	if len(k.permutations) > maxPermutations {
		t.Errorf("%d permutations", len(k.permutations))
	}
	if p := k.Known("coupon"); p == nil || p.Domain() != "53" {
		t.Error("a tag is not opaque any more")
	}
}
