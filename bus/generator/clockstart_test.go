package generator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// tagsOnly checks that a node is ready but for snowflakes, and that its reason has these words.
func tagsOnly(t *testing.T, nc *nats.Conn, node, missing string, words ...string) {
	t.Helper()
	if body, code := ask(t, nc, "leaf.segment.order", ""); code != "" {
		t.Errorf("a tag is refused with %s: %s", code, body)
	}
	s, _ := state(t, nc, node)
	if !slices.Equal(s.Missing, []string{missing}) || s.Worker != nil {
		t.Errorf("the state of %s is %+v", node, s)
	}
	for _, word := range words {
		if !strings.Contains(s.Reasons[missing], word) {
			t.Errorf("%q is not in the reason: %s", word, s.Reasons[missing])
		}
	}
}

// A clock that is behind what the own last run has put on record: snowflakes are refused with an alert, tags are
// served.
func TestClockBehindAtStart(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := newClock()
	records := newRegistry(snowflaketest.NewMemory())
	store := memory(t, "order")
	disk := snowflaketest.NewDisk()
	own := func(cfg *generator.Config) {
		on(c, records)(cfg)
		disk = disk.Kill()
		cfg.Snowflake.File = newFile(t, disk)
	}
	first := start(t, s, "n", store, own)
	last := flake(t, nc)
	stream := eventsOn(t, nc) // while a generator creates the stream
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	before, err := records.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	recorded := c.now()

	c.step(-time.Hour)
	// Without the registry, the file has almost the same time.
	for i, away := range []bool{false, true} {
		records.away.Store(away)
		again := start(t, s, "n", store, own)
		tagsOnly(t, nc, "n", "clock", "--node")
		if body, code := ask(t, nc, "leaf.snowflake", ""); code != "503" || !strings.Contains(body, `"reason":"clock_backwards"`) {
			t.Errorf("code %q: %s", code, body)
		}
		if i == 0 {
			wantEvent(t, stream, "alert", "leaf.clock.skewed", "n",
				fmt.Sprintf(`{"node":"n","now_ms":%d,"recorded_ms":%d,"threshold_ms":5000}`, c.now(), recorded))
		}
		testkit.Eventually(t, "each start is reported once", func() bool { return len(stream("leaf.clock.skewed")) == i+1 })
		if err := again.stop(); err != nil {
			t.Fatal(err)
		}
		records.away.Store(false)
		if after, err := records.List(t.Context()); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("the records are %v, %v; were %v", after, err, before)
		}
	}

	// Either of what it said to do helps.
	other := start(t, s, "other", store, own)
	if p := flake(t, nc); p.Worker == last.Worker || p.UnixMS != c.now() {
		t.Errorf("under another name: %+v, before: %+v", p, last)
	}
	if err := other.stop(); err != nil {
		t.Fatal(err)
	}
	c.step(time.Hour)
	start(t, s, "n", store, own)
	testkit.Eventually(t, "it issues", func() bool {
		c.pass(time.Millisecond)
		_, code := ask(t, nc, "leaf.snowflake", "")
		return code == ""
	})
	if n := len(stream("leaf.clock.skewed")); n != 2 {
		t.Errorf("%d alerts, want 2", n)
	}
}

// A start with a clock that differs from the others' clocks: snowflakes come from the others, until the clocks agree.
// Whether the node is new makes no difference.
func TestClockDiffersAtStart(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			a, b := newClock(), newClock()
			b.start = a.start
			registry := snowflaketest.NewMemory()
			store := memory(t, "order")
			start(t, s, "a", store, on(a, registry))
			stream := eventsOn(t, nc)
			disk := snowflaketest.NewDisk()
			own := func(cfg *generator.Config) {
				on(b, registry)(cfg)
				disk = disk.Kill()
				cfg.Snowflake.File = newFile(t, disk)
			}
			if restarted {
				first := start(t, s, "b", store, own)
				allAnswer(t, nc, 2)
				if err := first.stop(); err != nil {
					t.Fatal(err)
				}
			}

			b.step(time.Hour)
			start(t, s, "b", store, own)
			tagsOnly(t, nc, "b", "worker", "1h0m0s ahead")
			wantEvent(t, stream, "alert", "leaf.clock.skewed", "b",
				fmt.Sprintf(`{"node":"b","now_ms":%d,"peers_ms":%d,"threshold_ms":1000}`, b.now(), a.now()))
			for range 50 {
				if p := flake(t, nc); p.Worker != 0 || p.UnixMS != a.now() {
					t.Fatalf("a snowflake is %+v", p)
				}
			}
			b.step(-time.Hour)
			testkit.Eventually(t, "both serve", func() bool {
				b.pass(time.Millisecond) // above what the last run issued
				return slices.Equal(serving(t, nc), []string{"a", "b"})
			})
			allAnswer(t, nc, 2)
			testkit.Eventually(t, "the alert ends", func() bool { return len(stream("leaf.clock.recovered")) == 1 })
			if n := len(stream("leaf.clock.skewed")); n != 1 {
				t.Errorf("%d alerts, want the one", n)
			}
		})
	}
}
