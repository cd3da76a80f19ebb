package generator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// refusedStart runs a generator whose start must be refused, and returns why.
func refusedStart(t *testing.T, s *embedded.Server, node string, change func(*generator.Config)) error {
	t.Helper()
	g, _ := begin(t, s, node, memory(t, "order"), change)
	select {
	case err := <-g.ended():
		g.done <- err
		if !errors.Is(err, snowflake.ErrRefused) {
			t.Fatalf("%s ended with %v, want %v", node, err, snowflake.ErrRefused)
		}
		return err
	case <-time.After(testkit.Patience):
		t.Fatalf("%s did not end", node)
		return nil
	}
}

// A clock that is behind what the own last run has put on record: the start is
// refused, and the alert is in the stream before the generator ends.
func TestClockBehindAtStart(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := newClock()
	records := newRegistry(snowflaketest.NewMemory())
	disk := snowflaketest.NewDisk()
	own := func(cfg *generator.Config) {
		on(c, records)(cfg)
		disk = disk.Kill()
		cfg.Snowflake.File = newFile(t, disk)
	}
	first := start(t, s, "n", memory(t), own)
	last := flake(t, nc)
	stream := events(t, nc) // while a generator creates the stream
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	before, err := records.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	recorded := c.now()

	c.step(-time.Hour)
	if err := refusedStart(t, s, "n", own); !strings.Contains(err.Error(), "1h0m0s") || !strings.Contains(err.Error(), "--node") {
		t.Errorf("the error does not say by how much, or what to do: %v", err)
	}
	wantEvent(t, stream, "alert", "leaf.clock.skewed", "n",
		fmt.Sprintf(`{"node":"n","now_ms":%d,"recorded_ms":%d,"threshold_ms":5000}`, c.now(), recorded))
	if after, err := records.List(t.Context()); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the records are %v, %v; were %v", after, err, before)
	}
	// The file has almost the same time, for a start without the registry.
	records.away.Store(true)
	refusedStart(t, s, "n", own)
	wantEvents := 2
	testkit.Eventually(t, "each refusal is published", func() bool { return len(stream("leaf.clock.skewed")) == wantEvents })
	records.away.Store(false)

	// Either of what it said to do helps.
	other := start(t, s, "other", memory(t), own)
	if p := flake(t, nc); p.Worker == last.Worker || p.UnixMS != c.now() {
		t.Errorf("under another name: %+v, before: %+v", p, last)
	}
	if err := other.stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(stream("leaf.clock.skewed")); n != wantEvents {
		t.Errorf("%d alerts, want %d", n, wantEvents)
	}
}

// A new node with a clock that differs from its peers' clocks.
func TestClockOfNewNode(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	a, b := newClock(), newClock()
	b.start = a.start
	registry := snowflaketest.NewMemory()
	start(t, s, "a", memory(t), on(a, registry))
	stream := events(t, nc)
	flake(t, nc)

	b.step(1500 * time.Millisecond)
	if err := refusedStart(t, s, "b", on(b, registry)); !strings.Contains(err.Error(), "1.5s ahead") {
		t.Errorf("the error does not say by how much: %v", err)
	}
	wantEvent(t, stream, "alert", "leaf.clock.skewed", "b",
		fmt.Sprintf(`{"node":"b","now_ms":%d,"peers_ms":%d,"threshold_ms":1000}`, b.now(), a.now()))
	if records := registry.Snapshot(); len(records) != 1 {
		t.Errorf("the records are %v", records)
	}

	b.step(-500 * time.Millisecond)
	start(t, s, "b", memory(t), on(b, registry))
	allAnswer(t, nc, 2)
	if n := len(stream("leaf.clock.skewed")); n != 1 {
		t.Errorf("%d alerts, want the one", n)
	}
}
