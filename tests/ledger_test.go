package tests

import (
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// ledgered is an installation whose tags are in MySQL, as tests of the ledger need it.
type ledgered struct {
	t   *testing.T
	dsn string
	db  *sql.DB
	nc  *nats.Conn
	js  jetstream.JetStream
	url string
}

// newLedgered returns an installation without generators.
func newLedgered(t *testing.T) *ledgered {
	t.Helper()
	dsn := mariadb.NewDatabase(t)
	url := newNATS(t).ClientURL()
	nc := connect(t, url)
	return &ledgered{t: t, dsn: dsn, db: openDB(t, dsn), nc: nc, js: jetStream(t, nc), url: url}
}

// join starts generators.
func (l *ledgered) join(nodes []string, args ...string) map[string]*generator {
	l.t.Helper()
	return join(l.t, l.url, l.dsn, nodes, args...)
}

// forget sets the database back to where each tag began.
func (l *ledgered) forget() {
	l.t.Helper()
	execute(l.t, l.db, "UPDATE leaf_alloc SET max_id = 1", "DELETE FROM leaf_mark")
}

// end is how far a tag is claimed, as its record says; 0: it has none.
func (l *ledgered) end(tag string) int64 {
	l.t.Helper()
	return claimedEnd(l.t, l.js, tag)
}

func claimedEnd(t *testing.T, js jetstream.JetStream, tag string) int64 {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), bus.BucketLedger)
	must(t, err)
	entry, err := kv.Get(t.Context(), "tag."+tag)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0
	}
	must(t, err)
	var record struct {
		End string `json:"end"`
	}
	must(t, json.Unmarshal(entry.Value(), &record))
	end, err := strconv.ParseInt(record.End, 10, 64)
	must(t, err)
	return end
}

// take returns an ID of a tag, which must be at least from.
func (l *ledgered) take(tag string, from int64) int64 {
	l.t.Helper()
	id := takeOne(l.t, bus.NewClient(l.nc), tag)
	if id < from {
		l.t.Errorf("ID %d of %s was handed out again: all below %d are in use", id, tag, from)
	}
	return id
}

// refusedWith takes what generators hold of a tag, until the answer is an error with a code and a reason. It
// returns the message.
func (l *ledgered) refusedWith(tag string, code int, reason bus.Reason) (message string) {
	l.t.Helper()
	testkit.Eventually(l.t, "a refusal of "+tag, func() bool {
		msg := ask(l.t, l.nc, "leaf.segment."+tag, "")
		if len(msg.Header) == 0 {
			return false // from memory
		}
		e := refusal(l.t, msg)
		if e.Reason == string(bus.TimedOut) { // it waited for the attempt that failed
			return false
		}
		if e.Code != code || e.Reason != string(reason) {
			l.t.Fatalf("%s was refused with %+v, want %d %s", tag, e, code, reason)
		}
		message = e.Message
		return true
	})
	return message
}

// hasty is the load of callers that give up after half a second.
func hasty(tag string, expected ...bus.Reason) loadConfig {
	return loadConfig{tag: tag, callers: 4, maxBatch: 100, patience: 500 * time.Millisecond, mayGiveUp: true, expected: expected}
}

// report ends the load and logs what its callers noticed.
func (l *load) report() {
	l.t.Helper()
	l.stop()
	_, text := l.unanswered()
	l.t.Log(text)
}

// askStates asks once: generators that are away do not answer.
func askStates(t *testing.T, c *bus.Client) []bus.State {
	t.Helper()
	found, err := c.States(t.Context())
	if err != nil {
		return nil
	}
	return found
}
