package generator_test

import (
	"context"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/natskit"
)

// delayed is a store whose answers to Reserve come when the gate is open.
type delayed struct {
	allocator.Store
	gate    chan struct{}
	waiting chan struct{}
}

func (s *delayed) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	g, err := s.Store.Reserve(ctx, tag, n, from)
	if err == nil {
		select {
		case s.waiting <- struct{}{}:
		default:
		}
		<-s.gate
	}
	return g, err
}

// Records that cannot be served are listed apart, and the pages go past them.
func TestUnservedTags(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := memory(t, "a", "c")
	records := store.Snapshot()
	for _, tag := range []allocator.Tag{{Name: "b d", MaxID: 1, Step: 10}, {Name: "b", MaxID: 1, Step: 0}, {Name: "订单", MaxID: 7, Step: 1}} {
		records[tag.Name] = tag
	}
	store.Restore(records)
	start(t, s, "n", store, nil)

	var served, unserved []string
	client := admin.NewClient(nc)
	for req := (admin.PageRequest{Limit: 1}); ; {
		page, err := client.Tags(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range page.Tags {
			served = append(served, tag.Tag)
		}
		for _, tag := range page.Unserved {
			unserved = append(unserved, tag.Tag)
			if tag.Problem == "" {
				t.Errorf("no problem is named with %q", tag.Tag)
			}
		}
		if req.After = page.Next; page.Next == "" {
			break
		}
	}
	if got, want := strings.Join(served, ","), "a,c"; got != want {
		t.Errorf("served: %s, want %s", got, want)
	}
	if got, want := strings.Join(unserved, ","), "b,b d,订单"; got != want {
		t.Errorf("not served: %s, want %s", got, want)
	}
}
