//go:build drills

package drills

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// 10^8 IDs of a tag come in batches from three generators, none twice.
func TestDrillHundredMillion(t *testing.T) {
	const total, batch = 100_000_000, 1_000_000
	first := kit.Embed(t, "--tag", "order", "--node", "one")
	kit.Join(t, first.URL, "--node", "two")
	kit.Join(t, first.URL, "--node", "three")
	var taken allocatortest.Checker
	client := bus.NewClient(kit.Connect(t, first.URL), bus.NoHedging()) // a hedge would be a gap of a million
	for r, err := range client.Ranges(testkit.Context(t), "order", total, bus.Batch(batch), bus.Parallel(4)) {
		kit.Must(t, err)
		taken.Add(r)
	}
	if ids, err := taken.Check(); err != nil || ids != total {
		t.Errorf("%d IDs, %v", ids, err)
	}
}

const (
	manyTags   = 100_000
	manyEvents = 1_000_000
	// auditMemory is how much an audit of that many may hold.
	auditMemory = 512 << 20
)

// An audit of 100,000 tags and a million refill events, with gaps, prints how long it takes and how much memory it
// holds.
func TestDrillAuditOfAMillionEvents(t *testing.T) {
	url := natskit.Start(t).ClientURL()
	kit.Join(t, url, "--events-max-bytes", "4294967296")
	nc := kit.Connect(t, url)
	js, err := jetstream.New(nc)
	kit.Must(t, err)
	publish := func(subject, body string, headers ...string) {
		msg := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
		for i := 0; i < len(headers); i += 2 {
			msg.Header.Set(headers[i], headers[i+1])
		}
		_, err := js.PublishMsgAsync(msg, jetstream.WithStallWait(testkit.Patience))
		kit.Must(t, err)
	}
	tags, err := js.Stream(t.Context(), "KV_LEAF_TAGS")
	kit.Must(t, err)
	bucket := tags.CachedInfo().Config.FirstSeq
	name := func(i int) string { return fmt.Sprintf("shop.order.%06d", i) }
	for i := range manyTags {
		publish("$KV.LEAF_TAGS."+name(i), fmt.Sprintf(
			`{"format":1,"bucket":"%d","tag":"%s","end":"101","step":10,"updated":"2026-01-01T00:00:00Z"}`, bucket, name(i)))
	}
	for i := range manyEvents { // ten refills of each tag, with a gap
		if tag, refill := name(i%manyTags), i/manyTags; refill != 5 {
			body := fmt.Sprintf(`{"node":"n1","tag":"%s","first":"%d","last":"%d","step":10,"cause":"demand","elapsed_ms":1}`,
				tag, 1+10*refill, 10+10*refill)
			publish("leaf.events.info.segment.refill."+tag, body, "ce-specversion", "1.0", "ce-type", "leaf.segment.refill",
				"ce-id", fmt.Sprint(i), "ce-source", "/leaf/n1", "ce-subject", tag, "ce-time", "2026-01-01T00:00:00Z")
		}
	}
	<-js.PublishAsyncComplete()

	client := admin.NewClient(nc, admin.Timeout(10*time.Second))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	report, err := audit.Run(t.Context(), kvstore.AuditSource(client, js), audit.Options{})
	kit.Must(t, err)
	took := time.Since(began)
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
	t.Logf("%d tags and %d events: %v, %d MiB held at the end", len(report.Tags), report.Events, took.Round(time.Millisecond), held>>20)
	if len(report.Tags) != manyTags || report.Events < manyEvents*9/10 {
		t.Errorf("%d tags and %d events", len(report.Tags), report.Events)
	}
	if len(report.Contradictions) > 0 {
		t.Errorf("%d contradictions, the first: %+v", len(report.Contradictions), report.Contradictions[0])
	}
	if held > auditMemory {
		t.Errorf("the audit holds %d MiB", held>>20)
	}
	runtime.KeepAlive(report)
}
