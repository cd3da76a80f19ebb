package generator

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// A store that is not NATS answers also while NATS is unavailable. Then no peer is heard, so a range
// that it reserves must not be used.
func TestNoPeerMarksWhileCutOff(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	away := nc.StatusChanged(nats.RECONNECTING)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	file, err := snowflake.NewFile(snowflaketest.NewDisk())
	if err != nil {
		t.Fatal(err)
	}
	g := New(Config{
		Conn: nc, JS: js, Store: allocatortest.NewMemory(), Marks: allocator.NewMarks(), Node: "n", Log: testkit.Quiet,
		OpenEvents: func(context.Context) error { return nil },
		Snowflake:  snowflake.Config{Layout: snowflake.DefaultLayout(), Registry: snowflaketest.NewMemory(), File: file},
	})
	held, err := g.evidence(t.Context())
	if err != nil || !held() {
		t.Fatalf("connected: %v", err)
	}
	s.Close()
	<-away
	if held() {
		t.Error("what is reserved while NATS goes away counts")
	}
	if _, err := g.evidence(t.Context()); err == nil {
		t.Error("the peer marks count as complete while NATS is unavailable")
	}
}
