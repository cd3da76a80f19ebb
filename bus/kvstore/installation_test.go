package kvstore

import (
	"errors"
	"reflect"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// recordOf returns the installation's record; the ID is empty if there is none.
func recordOf(t *testing.T, cfg Config) Installation {
	t.Helper()
	have, ok, err := ReadInstallation(t.Context(), cfg)
	if err != nil || ok != (have.ID != "") {
		t.Fatalf("ReadInstallation: %+v, %v, %v", have, ok, err)
	}
	return have
}

// installed makes the installation's record, if there is none, and returns the one that is there.
func installed(t *testing.T, cfg Config, id string) Installation {
	t.Helper()
	if err := CreateInstallation(t.Context(), cfg, Installation{ID: id, Store: "kv", Registry: "kv",
		Layout: snowflake.DefaultLayout()}); err != nil {
		t.Fatal(err)
	}
	return recordOf(t, cfg)
}

// The first record counts. Until there is one, nobody makes the bucket.
func TestInstallation(t *testing.T) {
	cfg := newConfig(t, natskit.Start(t))
	if have := recordOf(t, cfg); have.ID != "" {
		t.Errorf("the record is %+v", have)
	}
	if _, err := cfg.JS.KeyValue(t.Context(), wire.BucketInstallation); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Errorf("reading the record made the bucket: %v", err)
	}
	first := installed(t, cfg, "first")
	if first.ID != "first" || first.Layout != snowflake.DefaultLayout() {
		t.Errorf("the record is %+v", first)
	}
	if again := installed(t, cfg, "second"); !reflect.DeepEqual(again, first) {
		t.Errorf("the record is %+v, it was %+v", again, first)
	}
}

// Changes at once do not undo each other: one that finds another there begins again. A change that fails
// changes nothing.
func TestChangeInstallation(t *testing.T) {
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	installed(t, cfg, "ours")
	var together sync.WaitGroup
	for range 8 {
		cfg := newConfig(t, s)
		together.Go(func() {
			if _, err := ChangeInstallation(t.Context(), cfg, func(have *Installation) error {
				have.Tags++
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	before := recordOf(t, cfg)
	if before.Tags != 8 {
		t.Errorf("the record is %+v", before)
	}
	times := 0
	add := func(have *Installation) error {
		have.Tags++
		return nil
	}
	before, err := ChangeInstallation(t.Context(), cfg, func(have *Installation) error {
		if times++; times == 1 {
			if _, err := ChangeInstallation(t.Context(), cfg, add); err != nil {
				t.Error(err)
			}
		}
		return add(have)
	})
	if err != nil || times != 2 || before.Tags != 10 {
		t.Errorf("ChangeInstallation: %+v, %v after %d attempts", before, err, times)
	}
	no := errors.New("no")
	if _, err := ChangeInstallation(t.Context(), cfg,
		func(have *Installation) error { have.ID = "x"; return no }); !errors.Is(err, no) {
		t.Errorf("ChangeInstallation: %v", err)
	}
	if now := recordOf(t, cfg); !reflect.DeepEqual(now, before) {
		t.Errorf("the record is %+v, it was %+v", now, before)
	}
}
