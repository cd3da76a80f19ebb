package tests

import (
	"fmt"
	"go/constant"
	"go/types"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// A busy tag fills its part of a small event stream, and the refill events of a quiet tag stay: a trace names the
// claim with its cause. Many busy tags remove those events too. Then the quiet tag's record still has its last claim.
func TestEventsRetention(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"kv", "mysql"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			var args []string
			if store == "mysql" {
				args = []string{"--mysql", mariadb.NewDatabase(t)}
			}
			k := newKept(t, append(args, "--events-max-bytes", "1048576")...)
			perSubject := k.stream.CachedInfo().Config.MaxMsgsPerSubject
			if perSubject != 1<<20/8/512 {
				t.Errorf("the stream keeps %d events of a subject", perSubject)
			}
			k.refill("quiet", 1)
			older := k.last("quiet")
			k.refill("quiet", 1)
			last := k.last("quiet")

			busy := strings.Repeat("busy", 30) + "."
			k.refill(busy+"0", 5<<20/4/800) // each event has more than 800 bytes, so without a limit these would fill the stream
			if n := k.count(busy + "0"); n != uint64(perSubject) {
				t.Errorf("the stream has %d events of the busy tag, want %d", n, perSubject)
			}
			k.wantTrace("quiet", older, false)
			k.wantTrace("quiet", last, false)

			for n := 1; k.count("quiet") > 0 && n < 20; n++ {
				k.refill(fmt.Sprint(busy, n), int(perSubject))
			}
			k.wantTrace("quiet", last, true)
			trace, err := k.client.Trace(t.Context(), bus.TraceRequest{Tag: "quiet", ID: older.Last})
			must(t, err)
			if trace.Outcome != bus.NotRecorded || len(trace.Claims) > 0 {
				t.Errorf("without events an older range has the trace %+v", trace)
			}
			for command, want := range map[string]string{
				"trace quiet " + fmt.Sprint(last.Last): k.node,
				"audit":                                "quiet", // events that are gone contradict nothing
			} {
				r := leaf(t, append(strings.Fields(command), "-s", k.url)...)
				if r.status != 0 || !strings.Contains(r.stdout, want) {
					t.Errorf("leaf %s: status %d, %s, want %q", command, r.status, r.stdout, want)
				}
			}
		})
	}
}

// What docs/events.md says of the size of an event.
func TestRefillEventSize(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	for _, c := range []struct {
		tag         string
		least, most uint64
	}{
		{"invoice.eu.north", 496, 520},
		{strings.Repeat("x", 128), 832, 860},
	} {
		k.create(c.tag, 1e17)
		before := k.state().Bytes
		k.refill(c.tag, 1)
		size := k.state().Bytes - before
		t.Logf("a refill event of a tag with %d letters has %d bytes", len(c.tag), size)
		if size < c.least || size > c.most {
			t.Errorf("a refill event of %s has %d bytes, want %d to %d", c.tag, size, c.least, c.most)
		}
	}
}

// The table of docs/events.md: how many events a stream holds, and how long they stay.
func TestEventsTable(t *testing.T) {
	t.Parallel()
	doc := topFile(t, "docs/events.md")
	lasts := func(seconds float64) string {
		switch days, hours := seconds/86400, seconds/3600; {
		case days >= 3:
			return fmt.Sprintf("%.0f days", days)
		case hours >= 3:
			return fmt.Sprintf("%.0f hours", hours)
		}
		return fmt.Sprintf("%.0f minutes", seconds/60)
	}
	for _, size := range []struct {
		name  string
		bytes int64
	}{
		{"64 MiB", 64 << 20}, {"256 MiB (default)", kvstore.DefaultEventsMaxBytes}, {"1 GiB", 1 << 30}, {"4 GiB", 4 << 30}, {"16 GiB", 16 << 30},
	} {
		events := size.bytes / 512
		want := "| " + size.name
		for _, n := range []int64{events, events / 8, events / 30} {
			want += " | " + inTheDoc(types.NewConst(0, nil, "", types.Typ[types.Int64], constant.MakeInt64(n)), "")
		}
		for _, rate := range []float64{1, 10, 100, 1000} {
			want += " | " + lasts(float64(events)/rate)
		}
		if !strings.Contains(doc, want+" |\n") {
			t.Errorf("docs/events.md does not have the row %s |", want)
		}
	}
}

// kept is an installation with one generator, whose events are looked at.
type kept struct {
	t      *testing.T
	begun  time.Time
	url    string
	node   string
	client *bus.Client
	stream jetstream.Stream
	tags   map[string]bool
}

func newKept(t *testing.T, args ...string) *kept {
	t.Helper()
	begun := time.Now()
	g := embed(t, append(args, "--max-step", "1")...)
	nc := connect(t, g.url)
	// A request that is sent again is a refill more. With this timeout that is after a longer time than a slow machine needs.
	c := bus.NewClient(nc, bus.NoHedging(), bus.Timeout(5*patience))
	k := &kept{t: t, begun: begun, url: g.url, node: g.node, client: c, tags: make(map[string]bool)}
	testkit.Eventually(t, "the event stream", func() (made bool) {
		var err error
		k.stream, err = jetStream(t, nc).Stream(t.Context(), bus.EventStream)
		return err == nil
	})
	return k
}

func refillSubject(tag string) string { return "leaf.events.info.segment.refill." + tag }

// create creates a tag, and waits for the event.
func (k *kept) create(tag string, maxID bus.ID) {
	k.t.Helper()
	_, err := k.client.CreateTag(k.t.Context(), bus.TagCreate{Tag: tag, MaxID: &maxID, Step: new(int64(1))})
	must(k.t, err)
	k.tags[tag] = true
	testkit.Eventually(k.t, "the event of the new tag", func() bool {
		_, err := k.stream.GetLastMsgForSubject(k.t.Context(), "leaf.events.info.tag.created."+tag)
		return err == nil
	})
}

// refill makes so many refills of a tag, and waits for the last one's event. A request for more than a step is a refill
// of its own, and no other follows.
func (k *kept) refill(tag string, times int) {
	k.t.Helper()
	if !k.tags[tag] {
		k.create(tag, 1)
	}
	var got []bus.Range
	for range times {
		var err error
		got, err = k.client.Take(k.t.Context(), tag, 100)
		must(k.t, err)
	}
	testkit.Eventually(k.t, "the event of the refill", func() bool { return k.last(tag).Last >= bus.ID(got[len(got)-1].Last) })
}

// last returns the last refill event of a tag; the zero refill: there is none.
func (k *kept) last(tag string) refill {
	k.t.Helper()
	msg, err := k.stream.GetLastMsgForSubject(k.t.Context(), refillSubject(tag))
	if err != nil {
		return refill{}
	}
	return parse[refill](k.t, msg.Data)
}

func (k *kept) state(options ...jetstream.StreamInfoOpt) jetstream.StreamState {
	k.t.Helper()
	info, err := k.stream.Info(k.t.Context(), options...)
	must(k.t, err)
	return info.State
}

// count is how many refill events of a tag are in the stream.
func (k *kept) count(tag string) uint64 {
	k.t.Helper()
	return k.state(jetstream.WithSubjectFilter(refillSubject(tag))).Subjects[refillSubject(tag)]
}

// wantTrace demands that the last ID of a range is traced to its claim: to the record alone, or to the event.
func (k *kept) wantTrace(tag string, want refill, record bool) {
	k.t.Helper()
	trace, err := k.client.Trace(k.t.Context(), bus.TraceRequest{Tag: tag, ID: want.Last})
	must(k.t, err)
	if trace.Outcome != bus.Claimed || len(trace.Claims) != 1 {
		k.t.Fatalf("the trace of ID %d is %+v, want one claim", want.Last, trace)
	}
	got := trace.Claims[0]
	if record {
		want.Cause = ""
	}
	if got.Record != record || string(got.Cause) != want.Cause || got.First != want.First || got.Last != want.Last || got.Node != k.node ||
		got.Time.Before(k.begun) || got.Time.After(time.Now()) {
		k.t.Errorf("ID %d was claimed as %+v says, want %+v of %s, by the record alone: %t", want.Last, got, want, k.node, record)
	}
}
