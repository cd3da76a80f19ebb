package generator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// The requests that the connection has when the end comes get IDs, and the next
// start may begin right after them.
func TestDrainSnowflakes(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := newClock()
	file := newFile(t, snowflaketest.NewDisk())
	g := start(t, s, "n", memory(t), func(cfg *generator.Config) {
		cfg.Snowflake.File = file
		cfg.Snowflake.Clock = func() snowflake.Reading {
			time.Sleep(200 * time.Microsecond) // so that requests queue up
			return c.read()
		}
	})
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	const requests = 1000
	for range requests {
		if err := nc.PublishRequest("leaf.snowflake", replies.Subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := g.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	var ids allocatortest.Checker
	for i := range requests {
		msg, err := replies.NextMsg(testkit.Patience)
		if err != nil {
			t.Fatalf("%d of %d requests were answered: %v", i, requests, err)
		}
		ranges, err := bus.ParseReply(msg.Data)
		if err != nil {
			t.Fatalf("%s: %v", msg.Data, err)
		}
		ids.Add(ranges...)
	}
	if n, err := ids.Check(); n != requests || err != nil {
		t.Errorf("%d IDs, %v", n, err)
	}
	if saved, ok := file.Saved(); !ok || saved.Ceiling != c.now()+1 {
		t.Errorf("the file says that all before %d is used, want %d", saved.Ceiling, c.now()+1)
	}
}

func TestDrainWaitingSnowflakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout time.Duration
		want    string // the reply's beginning
	}{
		"what waits is served":                         {testkit.Patience, ""},
		"a request that waits for too long is refused": {time.Millisecond, `{"code":503,"reason":"draining"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			now := newClock()
			g := start(t, s, "n", memory(t), func(cfg *generator.Config) {
				on(now, snowflaketest.NewMemory())(cfg)
				cfg.DrainTimeout = c.timeout
			})
			replies, err := nc.SubscribeSync(nc.NewInbox())
			if err != nil {
				t.Fatal(err)
			}
			// More than a millisecond has, while time stands still.
			if err := nc.PublishRequest("leaf.snowflake", replies.Subject, []byte("5000")); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "it waits", func() bool {
				s, _ := state(t, nc, "n")
				return s.Counts.Waiting == 1
			})
			stopped := make(chan error, 1)
			go func() { stopped <- g.stop() }()
			if c.want == "" {
				testkit.Eventually(t, "it says to others that it drains", func() bool {
					body, code := ask(t, nc, "leaf.snowflake", "")
					return code == "503" && strings.HasPrefix(body, `{"code":503,"reason":"draining"`)
				})
				now.pass(10 * time.Millisecond)
			}
			msg, err := replies.NextMsg(testkit.Patience)
			if err != nil {
				t.Fatal(err)
			}
			if ranges, err := bus.ParseReply(msg.Data); (err == nil) != (c.want == "") || !strings.HasPrefix(string(msg.Data), c.want) {
				t.Errorf("the answer is %.100s, %v, %v", msg.Data, ranges, err)
			}
			if err := <-stopped; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}
