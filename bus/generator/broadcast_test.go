package generator_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// What one generator reserved is a peer mark of another, also of one that starts later and reads it
// from the stream.
func TestPeerMarks(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	first := memory(t, "order")
	start(t, s, "first", first, nil)
	stream := events(t, nc)
	if _, code := ask(t, nc, "leaf.segment.order", "500"); code != "" {
		t.Fatalf("code %s", code)
	}
	testkit.Eventually(t, "the refill is in the stream", func() bool { return len(stream("leaf.segment.refill")) > 0 })

	// The second has a store that went backwards: as a stale replica would be.
	stale := start(t, s, "stale", memory(t, "order"), nil)
	page, err := stale.conn.Request("leaf.admin.buffers", nil, testkit.Patience)
	if err != nil || len(page.Data) == 0 {
		t.Fatalf("%v", err)
	}
	testkit.Eventually(t, "the stale one refuses", func() bool {
		body, code := ask(t, nc, "leaf.segment.order", "")
		return code == "503" && strings.Contains(body, `"reason":"store_regressed"`)
	})
	testkit.Eventually(t, "the alert is in the stream", func() bool { return len(stream("leaf.segment.regressed")) == 1 })
	var body struct{ Got, Seen bus.ID }
	if err := json.Unmarshal(stream("leaf.segment.regressed")[0].Data, &body); err != nil || body.Got != 1 || body.Seen < 501 {
		t.Errorf("the alert says %+v, %v", body, err)
	}
}

// The peers learn at once what a generator reserves, also while its events wait for the stream.
func TestPeerMarksWithoutStream(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	noStream := func(c *generator.Config) {
		c.OpenEvents = func(context.Context) error { return errors.New("away") }
	}
	first := start(t, s, "first", memory(t, "order"), noStream)
	stale := start(t, s, "stale", memory(t, "order"), noStream)
	if _, err := first.Take(t.Context(), "order", 500); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the one whose store went backwards refuses", func() bool {
		_, err := stale.Take(t.Context(), "order", 1)
		e, ok := errors.AsType[*bus.Error](err)
		return ok && e.Reason == bus.StoreRegressed
	})
}

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
