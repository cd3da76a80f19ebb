package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
)

// Snowflakes of 53 bits, with units of a second: JavaScript holds them exactly, decode and trace know
// them, and a restart within a unit repeats none.
func TestSnowflakesOfSeconds(t *testing.T) {
	t.Parallel()
	flags := []string{"--id-bits", "53", "--worker-bits", "5", "--sequence-bits", "16", "--time-unit", "1s", "--worker-id", "9"}
	g := embed(t, flags...)
	nc := connect(t, g.url)
	var taken audit.Runs
	last := int64(0)
	take := func() {
		t.Helper()
		for _, r := range snowflakes(t, nc, "1000") {
			if r.First <= last || r.Last >= 1<<53 {
				t.Errorf("%v came after %d, want greater IDs below 2^53", r, last)
			}
			last = r.Last
			taken.Add(r)
		}
	}
	take()
	const epoch = 1288834974657
	ms := last>>21*1000 + epoch
	d := reply[bus.Decoded](t, ask(t, nc, "leaf.decode", fmt.Sprint(last)))
	if want := (bus.Decoded{ID: bus.ID(last), Time: time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z"), UnixMS: ms, Worker: 9, Sequence: last & 65535}); d != want {
		t.Errorf("%d is %+v, want %+v", last, d, want)
	}
	if age := time.Since(time.UnixMilli(ms)); age < 0 || age > time.Minute {
		t.Errorf("%d was made %v ago", last, age)
	}
	leaf(t, "decode", "-s", g.url, fmt.Sprint(1<<53)).want(t, 1, "more than 53 bits")
	trace, err := bus.NewClient(nc).Trace(t.Context(), bus.TraceRequest{Snowflake: bus.ID(last)})
	must(t, err)
	if trace.Outcome != bus.Claimed || len(trace.Claims) != 1 || trace.Claims[0].Node != g.node || strings.Contains(trace.Message, "later than") {
		t.Errorf("the trace of %d is %+v, want one claim of %s", last, trace, g.node)
	}
	for range 3 {
		take()
		g.kill()
		g = g.again(t, flags...)
		nc = connect(t, g.url)
		take()
	}
	report := auditOf(t, nc, &taken)
	clean(t, "after restarts", report)
	if got := report.TakenSnowflakes; got == nil || got.IDs != 7000 || got.Unclaimed != 0 || got.Unreported != 0 || got.Repeated != 0 {
		t.Errorf("%+v", got)
	}
	for unit, say := range map[string]string{"100ms": "(--time-unit) is 1000 there and 100 here", "1ms": "(--time-unit) is 1000 there and 1 here"} {
		other := append(append([]string{"serve", "--http", "", "-s", g.url}, flags...), "--time-unit", unit)
		leaf(t, other...).want(t, 1, say)
	}
	leaf(t, "serve", "--http", "", "-s", g.url).want(t, 1, "(--id-bits) is 53 there and 63 here", "(--time-unit)")
}
