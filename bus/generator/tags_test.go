package generator_test

import (
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/natskit"
)

// Records that cannot be served are listed apart, and the pages go past them.
func TestUnservedTags(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	records := memory(t, "a", "c")
	for _, tag := range []allocator.Tag{{Name: "b d", Step: 10}, {Name: "b"}, {Name: "订单", Step: 1}} {
		add(t, records, tag)
	}
	start(t, s, "n", records, nil)

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
