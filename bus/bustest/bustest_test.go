package bustest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/bustest"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// take takes IDs of a tag, or snowflakes if it is empty. There must be as many as that.
func take(t *testing.T, g *bustest.Generator, tag string, n int64) []bus.Range {
	t.Helper()
	call := g.Client().Snowflakes
	if tag != "" {
		call = func(ctx context.Context, n int64) ([]bus.Range, error) { return g.Client().Take(ctx, tag, n) }
	}
	ids, err := call(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// The tests that are not parallel come first: a goroutine that is left is theirs.

func TestClose(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	folders := func() int {
		entries, err := os.ReadDir(temp)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	g, err := bustest.Open("order")
	if err != nil {
		t.Fatal(err)
	}
	take(t, g, "order", 1)
	if folders() != 1 {
		t.Errorf("%d folders for one generator", folders())
	}
	for range 2 {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if folders() != 0 {
		t.Error("the folder is still there")
	}
	if !g.Conn().IsClosed() {
		t.Error("the connection is open")
	}
	if _, err := nats.Connect(g.URL()); !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("connected after Close: %v", err)
	}
	goleak.VerifyNone(t)
	if err := g.Stop(); err != nil {
		t.Errorf("Stop after Close: %v", err)
	}
	if err := g.Restart(); err == nil {
		t.Error("restarted after Close")
	}
}

func TestBadTag(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, tag := range []string{"", "a b", "order:", "order:0", "order:many", "order:-5", "order:99999999999999", ":5"} {
		g, err := bustest.Open("good", tag)
		if err == nil {
			g.Close()
			t.Errorf("%q was taken", tag)
			continue
		}
		if !strings.Contains(err.Error(), `"`+tag+`"`) {
			t.Errorf("%q: the error does not name it: %v", tag, err)
		}
	}
	if entries, _ := os.ReadDir(temp); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
	goleak.VerifyNone(t)
}

// A stopped generator answers nobody. Callers wait for its restart, which repeats no ID and takes no other worker. Kits
// are apart.
func TestStop(t *testing.T) {
	t.Parallel()
	g, other := bustest.Start(t, "order"), bustest.Start(t, "order")
	last := map[string]int64{}
	for range 3 {
		for tag, n := range map[string]int64{"order": 1500, "": 10_000} {
			ids := take(t, g, tag, n)
			if ids[0].First <= last[tag] {
				t.Errorf("%q: %v after %d", tag, ids[0], last[tag])
			}
			last[tag] = ids[len(ids)-1].Last
		}
		for range 2 {
			if err := g.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		for _, subject := range []string{"leaf.snowflake", "leaf.segment.order", "leaf.admin.tags.list"} {
			if _, err := g.Conn().Request(subject, nil, testkit.Patience); !errors.Is(err, nats.ErrNoResponders) {
				t.Errorf("%s after Stop: %v", subject, err)
			}
		}
		took := make(chan error, 1)
		go func() { // asks again until there is a generator
			_, err := g.Client(bus.Timeout(testkit.Patience)).Take(context.Background(), "order", 1)
			took <- err
		}()
		if err := g.Restart(); err != nil {
			t.Fatal(err)
		}
		if err := <-took; err != nil {
			t.Errorf("Take across the restart: %v", err)
		}
	}
	workers, err := admin.NewClient(g.Conn()).Workers(t.Context(), admin.WorkersRequest{})
	if err != nil || len(workers.Workers) != 1 {
		t.Errorf("the restarts took other workers: %+v, %v", workers, err)
	}
	if ids := take(t, other, "order", 1); ids[0].First != 1 {
		t.Errorf("another generator goes on with %v", ids)
	}
	g.Conn().Close() // a service may close what it was given
	if err := g.Restart(); err != nil {
		t.Fatal(err)
	}
	nc, err := natskit.Dial(g.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if ids, err := bus.NewClient(nc).Take(t.Context(), "order", 10); err != nil || ids[0].First <= last["order"] {
		t.Errorf("%v, %v after %d", ids, err, last["order"])
	}
}
