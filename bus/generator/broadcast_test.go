package generator_test

import (
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
)

// An operator's max_id is in force at every generator when the reply comes.
func TestMaxIDMovesEverywhere(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := memory(t, "order")

	for _, node := range []string{"a", "b", "c"} {
		start(t, s, node, store, nil)
	}
	for range 30 {
		ask(t, nc, "leaf.segment.order", "")
	}
	if body, code := ask(t, nc, "leaf.admin.tags.update", `{"tag":"order","max_id":"70000"}`); code != "" {
		t.Fatalf("code %s: %s", code, body)
	}
	for range 60 {
		body, code := ask(t, nc, "leaf.segment.order", "")
		if ranges, err := bus.ParseReply([]byte(body)); code != "" || err != nil || ranges[0].First < 70000 {
			t.Fatalf("after max_id was moved to 70000: %q, code %q", body, code)
		}
	}
}
