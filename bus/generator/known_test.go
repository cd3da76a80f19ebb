package generator_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// loseTags makes the records of tags count as none, as if they had been written for an earlier bucket.
func loseTags(t *testing.T, nc *nats.Conn, tags ...string) {
	t.Helper()
	kv := tagsBucket(t, nc)
	for _, tag := range tags {
		record, err := kv.Get(t.Context(), tag)
		if err == nil {
			other := regexp.MustCompile(`"bucket":"\d+"`).ReplaceAll(record.Value(), []byte(`"bucket":"1"`))
			_, err = kv.Put(t.Context(), tag, other)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// startWith starts a generator with a tag of the start.
func startWith(t *testing.T, s *embedded.Server, node, tag string) *running {
	t.Helper()
	return start(t, s, node, nil, func(c *generator.Config) {
		inKV(c)
		c.Tags = []allocator.Tag{{Name: tag, MaxID: 1, Step: 1000}}
	})
}

// wantCreated creates a tag that was lost, and demands where it begins.
func wantCreated(t *testing.T, nc *nats.Conn, req admin.TagSpec, at bus.ID) {
	t.Helper()
	got, err := admin.NewClient(nc).CreateTag(t.Context(), req)
	if err != nil || got.MaxID != at {
		t.Errorf("%s begins at %d (%v), not at %d", req.Tag, got.MaxID, err, at)
	}
}

// A tag that a restore has lost begins above what a running generator knows, whichever is asked.
func TestLostTagThatAPeerKnows(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	tags := []string{"a", "b", "c", "d", "e", "f", "g", "h"} // so that one that knows nothing is asked about some of them
	kvTags(t, s, nc, tags...)
	noEvents := func(c *generator.Config) {
		inKV(c)
		c.OpenEvents = func(context.Context) error { return errors.New("no events here") }
	}
	knows := start(t, s, "knows", nil, noEvents)
	for _, tag := range tags {
		knows.takeAll(t, tag, 1)
	}
	start(t, s, "new", nil, noEvents)
	known := make(map[string]bool)
	pages, err := admin.NewClient(nc).Known(t.Context(), admin.KnownRequest{After: "b"})
	for _, page := range pages {
		for _, k := range page.Tags {
			if known[k.Tag] = true; k.End != 1001 {
				t.Errorf("%s knows %s up to %d", page.Node, k.Tag, k.End)
			}
		}
	}
	if err != nil || len(pages) != 2 || len(known) != 6 {
		t.Errorf("%d generators know %v (%v), not those after b", len(pages), known, err)
	}
	loseTags(t, nc, tags...)
	late := startWith(t, s, "late", "a")
	testkit.Eventually(t, "late knows no tag a", func() bool { // while it is not prepared, it borrows
		_, err := late.Take(t.Context(), "a", 1)
		return errors.Is(err, bus.UnknownTag)
	})
	for _, tag := range tags {
		wantCreated(t, nc, admin.TagSpec{Tag: tag}, 1001)
	}
	// Such a generator knows the kind of a strict or opaque tag, too.
	client := admin.NewClient(nc)
	kinds := []admin.TagSpec{{Tag: "invoice", Order: idspace.OrderStrict}, {Tag: "pin", Opaque: "d9"}}
	for _, req := range kinds {
		if _, err := client.CreateTag(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		knows.takeAll(t, req.Tag, 1)
	}
	loseTags(t, nc, "a", "invoice", "pin")
	missing, err := client.MissingTags(t.Context())
	if len(missing.Tags) > 0 { // the event of its creation says so, if the generator with a stream of events has made it
		missing.Tags[0].Order = strings.TrimPrefix(missing.Tags[0].Order, idspace.OrderTrend)
	}
	want := []admin.KnownTag{{Tag: "a", End: 1001}, {Tag: "invoice", End: 2, Order: idspace.OrderStrict},
		{Tag: "pin", End: 1001, Opaque: "d9"}}
	if !slices.Equal(missing.Tags, want) {
		t.Errorf("missing: %+v (%v), want %+v", missing.Tags, err, want)
	}
}

// Where no generator knows, the last events of the tag do. But they do not say how far a strict tag was.
func TestLostTagThatAnEventKnows(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	gone := start(t, s, "gone", nil, inKV)
	client := admin.NewClient(nc)
	eventsOn(t, nc) // the stream is there
	high := bus.ID(500)
	strict := admin.TagSpec{Tag: "invoice", Order: idspace.OrderStrict}
	for _, req := range []admin.TagSpec{{Tag: "order"}, {Tag: "unused", MaxID: &high}, strict} {
		if _, err := client.CreateTag(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	gone.takeAll(t, "order", 1)
	gone.takeAll(t, "invoice", 1)
	if err := gone.stop(); err != nil {
		t.Fatal(err)
	}
	loseTags(t, nc, "order", "unused", "invoice")
	startWith(t, s, "new", "order").refuses(t, "order", 1, bus.UnknownTag)
	wantCreated(t, nc, admin.TagSpec{Tag: "order"}, 1001)
	wantCreated(t, nc, admin.TagSpec{Tag: "unused"}, 500)
	if _, err := client.CreateTag(t.Context(), strict); !errors.Is(err, bus.Conflict) {
		t.Errorf("a strict tag of which only the name is known is created: %v", err)
	}
	strict.MaxID = &high
	wantCreated(t, nc, strict, 500)
	wantCreated(t, nc, admin.TagSpec{Tag: "another", Order: idspace.OrderStrict}, 1)
	if _, err := client.CreateTag(t.Context(), strict); !errors.Is(err, bus.Exists) {
		t.Errorf("it is created twice: %v", err)
	}
	if _, err := client.DeleteTag(t.Context(), "another"); err != nil { // that is no loss
		t.Fatal(err)
	}
	wantCreated(t, nc, admin.TagSpec{Tag: "another", Order: idspace.OrderStrict}, 1)
}

// The database knows the kind of each name that was in use, but not the domain of an opaque tag.
func TestLostTagThatTheDatabaseKnows(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	numbers := allocatortest.NewMemoryNumbers()
	index := allocator.NewIndex()
	want := []admin.KnownTag{{Tag: "coupon", End: 500, Order: "opaque"}, {Tag: "invoice", End: 600, Order: idspace.OrderStrict}}
	for _, m := range want {
		if err := numbers.Mark(t.Context(), m.Tag, int64(m.End), m.Order); err != nil {
			t.Fatal(err)
		}
		index.Observe(m.Tag, 500)
	}
	start(t, s, "n", memory(t), func(c *generator.Config) { c.Numbers, c.Index = numbers, index })
	missing, err := admin.NewClient(nc).MissingTags(t.Context())
	if !slices.Equal(missing.Tags, want) {
		t.Errorf("missing: %+v (%v), want %+v", missing.Tags, err, want)
	}
}
