package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// A start whose clock is behind the node's last run. Nobody can set the clock
// here: in its place the last report is moved ahead.
func TestClockBehindAtStart(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	nc := connect(t, server.ClientURL())
	js := jetStream(t, nc)
	g := serve(t, t.TempDir(), "-s", server.ClientURL(), "--node", "one")
	worker := workersOf(t, bus.NewClient(nc), "one")["one"]
	g.stop()
	report := func(ahead time.Duration) (ms int64) {
		ms = time.Now().Add(ahead).UnixMilli()
		changeWorker(t, js, worker, func(record map[string]any) { record["reported_ms"] = ms })
		return ms
	}

	recorded := report(time.Hour)
	record := workerText(t, js, worker)
	p := start(t, command(t, g.dir, nil, []string{"serve", "--http", "", "-s", server.ClientURL()}))
	if status := p.wait(patience); status != 1 || !strings.Contains(p.stderr.String(), "--node NEWNAME") {
		t.Errorf("exit status %d; want 1, and what to do: %s", status, &p.stderr)
	}
	alert := fmt.Sprintf(`"recorded_ms":%d,"threshold_ms":5000}`, recorded)
	if all := everyEvent(t, js); !strings.Contains(all, "leaf.events.alert.clock.skewed.one") || !strings.Contains(all, alert) {
		t.Errorf("the process has ended, and the events are %s", all)
	}
	if now := workerText(t, js, worker); now != record {
		t.Errorf("the record is %s, was %s", now, record)
	}

	recorded = report(3 * time.Second)
	again := g.again(t)
	if id := partsOf(snowflake(t, nc)); id.worker != worker || id.ms < recorded {
		t.Errorf("%+v was issued, want one of worker %d from %d on", id, worker, recorded)
	}
	again.stop()

	report(time.Hour)
	g.again(t, "--node", "two")
	if id := partsOf(snowflake(t, nc)); id.worker == worker {
		t.Errorf("the new node has the worker of the old one: %+v", id)
	}
}
