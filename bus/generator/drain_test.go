package generator_test

import (
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
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
		ranges, err := wire.ParseReply(msg.Data)
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
