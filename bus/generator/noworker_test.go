package generator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// A generator for which no worker is left leaves snowflakes to those that have one. It does not answer leaf.clock either,
// because it issues no time.
func TestNoWorkerLeft(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := newClock()
	only := on(c, snowflaketest.NewMemory())
	for _, node := range []string{"a", "b"} {
		start(t, s, node, memory(t), func(cfg *generator.Config) { only(cfg); cfg.Snowflake.LastWorker = 0 })
	}
	testkit.Eventually(t, "it leaves the queue group", func() bool { return strings.Join(serving(t, nc), " ") == "a" })
	for range 50 {
		flake(t, nc)
	}
	b, asked := state(t, nc, "b")
	if b.Worker != nil || strings.Join(b.Missing, " ") != "worker" || !strings.Contains(b.Reasons["worker"], "0 by a until") {
		t.Errorf("the state is %+v", b)
	}
	clocks := survey(t, nc, "leaf.clock")
	testkit.Eventually(t, "it has heard of the clocks", func() bool {
		_, n := state(t, nc, "b")
		return n > asked
	})
	msg, err := clocks.NextMsg(testkit.Patience)
	if want := fmt.Sprintf(`{"node":"a","worker":0,"unix_ms":%d}`, c.now()); err != nil || string(msg.Data) != want {
		t.Errorf("the clock is %v, %v; want %s", msg, err, want)
	}
	if n, _, err := clocks.Pending(); n > 0 || err != nil {
		t.Errorf("%d more clocks, %v", n, err)
	}
}

// What a running generator says that it holds counts, whatever the registry
// says: it may have been restored from a backup.
func TestWorkerClaimedByAnother(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	heartbeats, err := nc.SubscribeSync("leaf.internal.presence")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	claim := func(worker int64) error {
		return nc.Publish(heartbeats.Subject, fmt.Appendf(nil, `{"node":"clone","id":"1","worker":%d}`, worker))
	}
	c := newClock()
	records := snowflaketest.NewMemory()
	r := newRegistry(records)
	start(t, s, "n", memory(t), func(cfg *generator.Config) {
		on(c, r)(cfg)
		cfg.Join = func(context.Context, func(context.Context) error) (generator.Identity, error) {
			for _, then := range []func() error{
				func() error { return claim(0) }, // after its first heartbeat
				func() error { return nil },      // after the claim
				func() error { return nil },      // after its greeting: it has heard the claim
			} {
				_, err := heartbeats.NextMsg(testkit.Patience)
				if err := errors.Join(err, then()); err != nil {
					return generator.Identity{}, err
				}
			}
			return generator.Identity{}, nil
		}
	})
	if p := flake(t, nc); p.Worker != 1 {
		t.Errorf("it took worker %d, want 1: the other says that it has 0", p.Worker)
	}
	stream := eventsOn(t, nc)

	// It looks after its own at once when another claims it, not only with its
	// next report.
	const times, reports = 5, 3 * time.Second
	began := time.Now()
	for range times {
		calls := r.calls.Load()
		if err := claim(1); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it looks after its worker", func() bool { return r.calls.Load() > calls })
	}
	if took := time.Since(began); took > (times-2)*reports {
		t.Errorf("it looked %d times in %v: with its reports", times, took)
	}
	held := records.Snapshot()[1].ReservedUntil
	records.Wipe()
	if err := claim(1); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it has another worker", func() bool {
		c.pass(time.Millisecond) // it leaves what is left of this one
		body, code := ask(t, nc, "leaf.snowflake", "")
		return code == "" && parts(t, body).Worker != 1
	})
	wantLost(t, stream, "n", 1, held)
	wantEvent(t, stream, "info", "leaf.worker.recovered", "1", `{"node":"n","worker":1,"episode":"lost"}`)
}

// Before the installation is joined, the registry may belong to another one.
func TestNotJoined(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		installation string
		served       bool
	}{
		"new":       {"", false},
		"restarted": {"mine", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			records := snowflaketest.NewMemory()
			disk := snowflaketest.NewDisk()
			clk := newClock() // by the machine's clock, a slow start could stand still, and then the file is not enough
			join := func(context.Context, func(context.Context) error) (generator.Identity, error) {
				return generator.Identity{Installation: "mine"}, nil
			}
			first := start(t, s, "n", memory(t), func(cfg *generator.Config) {
				cfg.Join, cfg.Installation = join, "mine"
				cfg.Snowflake.Clock, cfg.Snowflake.Registry, cfg.Snowflake.File = clk.read, records, newFile(t, disk)
			})
			last := flake(t, nc)
			if err := first.stop(); err != nil {
				t.Fatal(err)
			}

			before := records.Snapshot()[0]
			r := newRegistry(records)
			joining := make(chan struct{})
			start(t, s, "n", memory(t), func(cfg *generator.Config) {
				cfg.Snowflake.Clock, cfg.Snowflake.Registry, cfg.Snowflake.File = clk.read, r, newFile(t, disk.Kill())
				cfg.Installation = c.installation
				cfg.Join = func(ctx context.Context, begin func(context.Context) error) (generator.Identity, error) {
					select {
					case <-joining:
						return join(ctx, begin)
					case <-ctx.Done():
						return generator.Identity{}, ctx.Err()
					}
				}
			})
			if c.served {
				testkit.Eventually(t, "it issues from its file", func() bool {
					clk.pass(time.Millisecond)
					body, code := ask(t, nc, "leaf.snowflake", "")
					if code != "" {
						return false
					}
					if p := parts(t, body); p.Worker != last.Worker || p.UnixMS <= last.UnixMS {
						t.Errorf("%+v after %+v", p, last)
					}
					return true
				})
			} else if body, code := ask(t, nc, "leaf.snowflake", ""); code != "503" || !strings.Contains(body, `"reason":"no_worker_id"`) {
				t.Errorf("code %q: %s", code, body)
			}
			if body, code := ask(t, nc, "leaf.admin.workers.list", ""); code != "503" || !strings.Contains(body, `"reason":"no_worker_id"`) {
				t.Errorf("the workers of a registry that may be another's: code %q, %s", code, body)
			}
			if n := r.calls.Load(); n > 0 {
				t.Errorf("the registry was asked %d times before the installation was joined", n)
			}

			close(joining)
			testkit.Eventually(t, "the registry knows of the start", func() bool {
				return records.Snapshot()[0].Incarnation != before.Incarnation
			})
			testkit.Eventually(t, "it issues", func() bool {
				clk.pass(time.Millisecond)
				body, code := ask(t, nc, "leaf.snowflake", "")
				return code == "" && parts(t, body).Worker == 0
			})
		})
	}
}
