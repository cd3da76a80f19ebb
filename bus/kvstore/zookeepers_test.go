package kvstore

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
)

func TestPinZooKeeper(t *testing.T) {
	cfg := newConfig(t, natskit.Start(t))
	joined, err := Join(t.Context(), cfg, layout, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	at := func(id string, first, last int64) ZooKeeper {
		return ZooKeeper{id, "h1/leaf/shop", "ours", first, last}
	}
	for _, step := range []struct {
		want ZooKeeper
		then []ZooKeeper // nil: refused
	}{
		{at("A", 64, 95), []ZooKeeper{at("A", 64, 95)}},
		{at("A", 64, 95), []ZooKeeper{at("A", 64, 95)}},
		{at("A", 70, 80), []ZooKeeper{at("A", 64, 95)}},
		{at("B", 95, 100), nil},
		{at("B", 0, 64), nil},
		{at("B", 0, 1023), nil},
		{at("B", 70, 80), nil},
		{at("B", 0, 31), []ZooKeeper{at("B", 0, 31), at("A", 64, 95)}},
		{at("A", 96, 96), []ZooKeeper{at("B", 0, 31), at("A", 64, 96)}},
		{at("A", 32, 40), []ZooKeeper{at("B", 0, 31), at("A", 32, 40), at("A", 64, 96)}},
		{at("A", 41, 63), []ZooKeeper{at("B", 0, 31), at("A", 32, 96)}},
		{at("C", 97, 1023), []ZooKeeper{at("B", 0, 31), at("A", 32, 96), at("C", 97, 1023)}},
		{at("A", 31, 40), nil},
	} {
		before, err := Join(t.Context(), cfg, layout, joined.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := PinZooKeeper(t.Context(), cfg, step.want)
		if step.then == nil {
			if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), "--zookeeper") {
				t.Errorf("%v: %v", step.want, err)
			}
			got, step.then = before, before.ZooKeepers
		} else if err != nil {
			t.Errorf("%v: %v", step.want, err)
		}
		noted, err := Join(t.Context(), cfg, layout, joined.ID, nil)
		if err != nil || !slices.Equal(got.ZooKeepers, step.then) || !slices.Equal(noted.ZooKeepers, step.then) {
			t.Fatalf("after %v: %v, noted %v, %v; want %v", step.want, got.ZooKeepers, noted.ZooKeepers, err, step.then)
		}
	}
	if z, ok := joined.ZooKeeper(0, 1023); ok {
		t.Errorf("before all that: %v", z)
	}
	noted, err := Join(t.Context(), cfg, layout, joined.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if z, ok := noted.ZooKeeper(40, 50); !ok || z.ID != "A" {
		t.Errorf("of 40 to 50: %v, %v", z, ok)
	}
}

// Those who are first at once do not undo each other's notes.
func TestPinsAtOnce(t *testing.T) {
	s := natskit.Start(t)
	if _, err := Join(t.Context(), newConfig(t, s), layout, "", nil); err != nil {
		t.Fatal(err)
	}
	pinned := make(chan error)
	for i := range int64(8) {
		cfg := newConfig(t, s)
		go func() {
			_, err := PinZooKeeper(t.Context(), cfg, ZooKeeper{"A", "", "ours", 10 * i, 10*i + 5})
			pinned <- err
		}()
		go func() {
			_, err := PinDatabase(t.Context(), cfg, "D")
			pinned <- err
		}()
	}
	for range 16 {
		if err := <-pinned; err != nil {
			t.Error(err)
		}
	}
	got, err := Join(t.Context(), newConfig(t, s), layout, "", nil)
	if err != nil || len(got.ZooKeepers) != 8 || got.Database != "D" {
		t.Errorf("%+v, %v", got, err)
	}
}
