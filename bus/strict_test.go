package bus_test

import (
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/bustest"
	"github.com/leafbus/leafbus/internal/testkit"
)

// strictTag starts a generator with the strict tag invoice and the tag order.
func strictTag(t *testing.T) *bustest.Generator {
	t.Helper()
	g := bustest.Start(t, "order")
	made, err := g.Client().CreateTag(testkit.Context(t), bus.TagCreate{Tag: "invoice", Order: bus.OrderStrict})
	if err != nil || made.Order != bus.OrderStrict {
		t.Fatalf("%+v, %v", made, err)
	}
	return g
}

// Replies with IDs of a strict tag carry the header, whatever their form. Others do not.
func TestStrictTagHasAHeader(t *testing.T) {
	t.Parallel()
	g := strictTag(t)
	for _, test := range []struct{ subject, body, order string }{
		{"leaf.segment.invoice", "", bus.OrderStrict},
		{"leaf.segment.invoice", "10", bus.OrderStrict},
		{"leaf.segment.invoice", `{"count":10}`, bus.OrderStrict},
		{"leaf.segment.order", "10", ""},
		{"leaf.snowflake", "10", ""},
	} {
		msg, err := g.Conn().RequestWithContext(testkit.Context(t), test.subject, []byte(test.body))
		if err == nil {
			err = bus.ReplyError(msg)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := msg.Header.Get(bus.HeaderOrder); got != test.order {
			t.Errorf("%s %s: the order is %q, want %q", test.subject, test.body, got, test.order)
		}
	}
}

// Next, Take and Ranges keep the order, from two clients.
func TestStrictTagOfAGenerator(t *testing.T) {
	t.Parallel()
	g := strictTag(t)
	clients := []*bus.Client{g.Client(), bus.NewClient(g.Conn())}
	ctx := testkit.Context(t)
	last := int64(0)
	above := func(what string, r bus.Range) {
		t.Helper()
		if r.First <= last {
			t.Errorf("%s: %v after %d", what, r, last)
		}
		last = r.Last
	}
	take := func() {
		t.Helper()
		for _, c := range clients {
			ranges, err := c.Take(ctx, "invoice", 1000)
			if err != nil || len(ranges) != 1 || ranges[0].Len() != 1000 {
				t.Fatalf("%v, %v", ranges, err)
			}
			above("Take", ranges[0])
			id, err := c.Next(ctx, "invoice")
			if err != nil {
				t.Fatal(err)
			}
			above("Next", bus.Range{First: id, Last: id})
		}
	}
	n := int64(0)
	for r, err := range clients[0].Ranges(ctx, "invoice", 10_000, bus.Batch(1500), bus.Parallel(4)) {
		if err != nil {
			t.Fatal(err)
		}
		above("Ranges", r)
		n += r.Len()
		take()
	}
	if n != 10_000 {
		t.Errorf("Ranges had %d IDs", n)
	}
}
