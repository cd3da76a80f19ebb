package generator_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A NATS server in the process that does not keep its state makes the generator not ready, and
// raises one alert, until it is well again.
func TestDegraded(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	events, err := nc.SubscribeSync("leaf.events.*.nats.>")
	if err != nil {
		t.Fatal(err)
	}
	var cause atomic.Pointer[string]
	g := start(t, s, "a", memory(t, "order"), func(c *generator.Config) {
		c.NATSErr = func() error {
			if why := cause.Load(); why != nil {
				return errors.New(*why)
			}
			return nil
		}
	})
	next := func(subject, body string) {
		t.Helper()
		msg, err := events.NextMsg(testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if msg.Subject != subject || string(msg.Data) != body {
			t.Errorf("%s %s, want %s %s", msg.Subject, msg.Data, subject, body)
		}
	}
	for _, why := range []string{"the disk is full", "a replica is behind"} {
		testkit.Eventually(t, "it is ready", func() bool { return g.Readiness().Ready })
		cause.Store(&why)
		if r := g.Readiness(); r.Ready || strings.Join(r.Missing, " ") != "nats" || r.Reasons["nats"] != why || !r.Segment || !r.Snowflake {
			t.Errorf("%+v", r)
		}
		next("leaf.events.alert.nats.degraded.a", `{"node":"a","cause":"`+why+`"}`)
		other := "another cause of the same episode"
		cause.Store(&other)
		cause.Store(nil)
		next("leaf.events.info.nats.recovered.a", `{"node":"a","episode":"degraded"}`)
	}
}
