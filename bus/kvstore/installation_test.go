package kvstore

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/snowflake"
)

var layout = Installation{Store: "kv", Registry: "kv", Layout: snowflake.DefaultLayout()}

func TestJoin(t *testing.T) {
	cfg := newConfig(t, natskit.Start(t))
	first, err := Join(t.Context(), cfg, layout, "", nil)
	if err != nil || first.ID == "" || first.Created.IsZero() {
		t.Fatalf("Join: %+v, %v", first, err)
	}
	again, err := Join(t.Context(), cfg, layout, first.ID, nil)
	if err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("Join again: %+v, %v; want %+v", again, err, first)
	}
}

func TestJoinAtOnce(t *testing.T) {
	s := natskit.Start(t)
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		cfg := newConfig(t, s)
		wg.Go(func() {
			got, err := Join(t.Context(), cfg, layout, "", nil)
			if err != nil {
				t.Errorf("Join: %v", err)
			}
			ids[i] = got.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("two installations: %v", ids)
		}
	}
}

func TestJoinRefused(t *testing.T) {
	other := func(f func(*Installation)) Installation {
		i := layout
		f(&i)
		return i
	}
	for name, c := range map[string]struct {
		want  Installation
		known string
		say   string
	}{
		"epoch":    {other(func(i *Installation) { i.Epoch = 5 }), "", "--epoch"},
		"store":    {other(func(i *Installation) { i.Store = "mysql" }), "", "the store of segments (--mysql) is kv there and mysql here"},
		"registry": {other(func(i *Installation) { i.Registry = "zookeeper" }), "", "the registry of workers (--zookeeper) is kv there and zookeeper here"},
		"bits":     {other(func(i *Installation) { i.WorkerBits = 8 }), "", "worker bits"},
		"folder":   {layout, "another", "--data-dir"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newConfig(t, natskit.Start(t))
			if _, err := Join(t.Context(), cfg, layout, "", nil); err != nil {
				t.Fatal(err)
			}
			_, err := Join(t.Context(), cfg, c.want, c.known, nil)
			if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("Join: %v; want it refused and %q named", err, c.say)
			}
		})
	}
}

// A NATS that lost its state must not begin again at 1 under a generator that
// knows better.
func TestJoinLost(t *testing.T) {
	cfg := newConfig(t, natskit.Start(t))
	_, err := Join(t.Context(), cfg, layout, "known", nil)
	if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), "known") {
		t.Errorf("Join: %v; want it refused", err)
	}
	if _, err := Join(t.Context(), cfg, layout, "", nil); err != nil {
		t.Errorf("a refused Join left something: %v", err)
	}
}

func TestJoinDamaged(t *testing.T) {
	cfg := newConfig(t, natskit.Start(t))
	if _, err := Join(t.Context(), cfg, layout, "", nil); err != nil {
		t.Fatal(err)
	}
	kv, err := cfg.JS.KeyValue(t.Context(), bus.BucketInstallation)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), installationKey, "{"); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), cfg, layout, "", nil); !errors.Is(err, allocator.ErrRefused) {
		t.Errorf("Join: %v; want it refused", err)
	}
}
