//go:build drills

package tests

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
)

const (
	manyTags   = 100_000
	manyEvents = 1_000_000
	// auditMemory is how much an audit of that many may hold.
	auditMemory = 512 << 20
	// atOnce is how many tags one statement inserts.
	atOnce = 1000
)

// An audit of 100,000 tags and a million refill events prints how long it takes and how much memory it holds. The
// events are as generators write them, with gaps.
func TestDrillAuditOfAMillionEvents(t *testing.T) {
	t.Run("mysql", func(t *testing.T) {
		l := newLedgered(t)
		leafOK(t, "migrate", "--mysql", l.dsn)
		execute(t, l.db, manyTagRows()...)
		l.join([]string{"n1"}, "--events-max-bytes", "4294967296")
		auditMany(t, l.nc)
	})
	t.Run("jetstream", func(t *testing.T) {
		url := newNATS(t).ClientURL()
		serve(t, t.TempDir(), "-s", url, "--events-max-bytes", "4294967296")
		nc := connect(t, url)
		p := newBulkPublisher(t, nc)
		for i := range manyTags {
			p.publish(tagRecordMessage(tagName(i), 101))
		}
		p.publish(tagRecordMessage("busy", 1_000_001))
		p.finish()
		auditMany(t, nc)
	})
}

// auditMany publishes the events of the tags, and audits.
func auditMany(t *testing.T, nc *nats.Conn) {
	p := newBulkPublisher(t, nc)
	for i := range manyEvents { // ten refills of each tag, with a gap
		if tag, round := tagName(i%manyTags), int64(i/manyTags); round != 5 {
			p.publish(refillEvent(tag, "n1", 1+10*round, 10+10*round))
		}
	}
	for i := range int64(manyTags) {
		p.publish(refillEvent("busy", "n2", 1+10*i, 10+10*i))
	}
	p.finish()

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client := bus.NewClient(nc, bus.Timeout(10*time.Second))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	stages := make(map[string]time.Duration)
	report, err := audit.Run(ctx, audit.Source{JS: p.js, Claims: client.Claims, Workers: client.Workers, States: client.States},
		audit.Options{Progress: func(what string, _, _ uint64) { stages[what] = time.Since(began).Round(time.Millisecond) }})
	must(t, err)
	took := time.Since(began)
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
	t.Logf("%d tags and %d events: %v (%v), %d MiB held at the end", len(report.Tags), report.Events, took.Round(time.Millisecond), stages, held>>20)
	if len(report.Tags) != manyTags+1 || report.Events < manyEvents {
		t.Errorf("%d tags and %d events, want %d and %d", len(report.Tags), report.Events, manyTags+1, manyEvents)
	}
	if len(report.Contradictions) > 0 {
		t.Errorf("%d contradictions, the first: %+v", len(report.Contradictions), report.Contradictions[0])
	}
	if held > auditMemory {
		t.Errorf("the audit holds %d MiB", held>>20)
	}
	runtime.KeepAlive(report)
}

// bulkPublisher publishes many messages to JetStream.
type bulkPublisher struct {
	t  *testing.T
	js jetstream.JetStream
}

func newBulkPublisher(t *testing.T, nc *nats.Conn) bulkPublisher {
	return bulkPublisher{t, jetStream(t, nc)}
}

func (p bulkPublisher) publish(msg *nats.Msg) {
	p.t.Helper()
	_, err := p.js.PublishMsgAsync(msg, jetstream.WithStallWait(testkit.Patience))
	must(p.t, err)
}

// finish waits until all messages are stored.
func (p bulkPublisher) finish() {
	p.t.Helper()
	select {
	case <-p.js.PublishAsyncComplete():
	case <-testkit.Context(p.t).Done():
		p.t.Fatal("the messages are not stored")
	}
}

// tagRecordMessage writes the record of a tag in JetStream.
func tagRecordMessage(tag string, maxID int64) *nats.Msg {
	msg := nats.NewMsg("$KV." + bus.BucketTags + "." + tag)
	msg.Data = fmt.Appendf(nil, `{"tag":"%s","max_id":"%d","step":10,"description":"","updated":"2026-01-01T00:00:00Z"}`, tag, maxID)
	return msg
}

// tagName is the name of tag i.
func tagName(i int) string { return fmt.Sprintf("shop.order.%06d", i) }

// manyTagRows inserts the tags, each at 101.
func manyTagRows() (statements []string) {
	for first := 0; first < manyTags; first += atOnce {
		rows := make([]string, atOnce)
		for i := range rows {
			rows[i] = fmt.Sprintf("('%s', 101, 10, '')", tagName(first+i))
		}
		statements = append(statements, "INSERT INTO leaf_alloc (biz_tag, max_id, step, description) VALUES "+strings.Join(rows, ", "))
	}
	return append(statements, "INSERT INTO leaf_alloc (biz_tag, max_id, step, description) VALUES ('busy', 1000001, 10, '')")
}
