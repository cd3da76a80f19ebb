package tests

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// After max_id was moved, no generator hands out an ID below, whatever it held.
func TestMaxIDMovedUnderLoad(t *testing.T) {
	t.Parallel()
	step := []string{"--max-step", "100000"} // far less than max_id is moved by
	first := embed(t, append(step, "--tag", "order:100000")...)
	second := serve(t, t.TempDir(), append(step, "-s", first.url)...)
	l := startLoad(t, loadConfig{tag: "order", callers: 6, maxBatch: 500}, first.url, first.url)
	for round := range 8 {
		l.more(500)
		floor := l.highest.Load() + 50_000_000
		leafOK(t, "tag", "set", "order", "--max-id", strconv.FormatInt(floor, 10), "-s", first.url)
		l.floor.Store(floor)
		l.more(500)
		if id := l.stale.Load(); id != 0 {
			t.Fatalf("round %d: ID %d was handed out after max_id was moved to %d", round, id, floor)
		}
	}
	l.stop()
	second.stop()
	first.stop()
}

// The command returns only when the other generators have taken in the change:
// not while one of them is held up.
func TestMaxIDWaitsForEveryGenerator(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	step := []string{"--max-step", "100000"} // far less than max_id is moved by
	serve(t, t.TempDir(), append(step, "-s", url, "--tag", "order:100000")...)
	slow := serve(t, t.TempDir(), append(step, "-s", url)...)
	nc := connect(t, url)
	c := bus.NewClient(nc)
	kv, err := jetStream(t, nc).KeyValue(t.Context(), bus.BucketTags)
	if err != nil {
		t.Fatal(err)
	}
	// Both have IDs in memory.
	for both := false; !both; both = len(askBuffers(t, nc, "order", 2)) == 2 {
		takeOne(t, c, "order")
	}
	held := 0
	for round := int64(1); held < 2; round++ {
		floor := bus.ID(round * 10_000_000)
		slow.freeze()
		returned := make(chan error, 1)
		go func() {
			_, err := c.UpdateTag(t.Context(), bus.TagUpdate{Tag: "order", MaxID: &floor})
			returned <- err
		}()
		// Either the store has it soon, or the slow one was asked.
		stored := func() bool {
			entry, err := kv.Get(t.Context(), "order")
			return err == nil && strings.Contains(string(entry.Value()), fmt.Sprintf(`"max_id":"%d"`, floor))
		}
		for deadline := time.Now().Add(time.Second); !stored() && time.Now().Before(deadline); {
		}
		if stored() {
			held++
			select {
			case err := <-returned:
				t.Fatalf("it returned (%v) while a generator was held up", err)
			case <-time.After(200 * time.Millisecond):
			}
		}
		slow.signal(syscall.SIGCONT)
		if err := <-returned; err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if id := takeOne(t, c, "order"); id < int64(floor) {
				t.Fatalf("ID %d was handed out after max_id was moved to %d", id, floor)
			}
		}
	}
}
