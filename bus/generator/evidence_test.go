package generator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// book is a ledger that the test writes.
type book struct {
	mu      sync.Mutex
	entries map[string]allocator.Entry
	errs    map[string]error
	onRead  func(ctx context.Context, tag string)
}

func (b *book) read(ctx context.Context, tag string) (allocator.Entry, error) {
	if b.onRead != nil {
		b.onRead(ctx, tag)
	}
	if ctx.Err() != nil {
		return allocator.Entry{}, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[tag], b.errs[tag]
}

// records are those of a book and a store.
type records struct {
	*book
	allocator.Store
}

func (r records) Claimed(ctx context.Context, tag string) (allocator.Entry, error) {
	return r.read(ctx, tag)
}

func (r records) Stored(ctx context.Context, tag string, _ int64) (allocator.Tag, error) {
	return r.Get(ctx, tag)
}

// startEvidence runs a generator with a store in memory and this ledger.
func startEvidence(t *testing.T, cfg embedded.Config, b *book, tags ...string) (*nats.Conn, *allocatortest.Memory) {
	t.Helper()
	s := natskit.StartWith(t, cfg)
	store := memory(t, tags...)
	start(t, s, "one", store, func(c *generator.Config) {
		c.StoreKind, c.Records = "mysql", records{b, store}
	})
	return natskit.Connect(t, s), store
}

// smallMessages configures a NATS whose messages have at most 2560 bytes.
func smallMessages(t *testing.T) embedded.Config {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte("max_payload: 2560\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return embedded.Config{ConfigFile: conf}
}

// claims asks once.
func claims(t *testing.T, nc *nats.Conn, body string) (page bus.ClaimsPage) {
	t.Helper()
	reply, code := ask(t, nc, bus.SubjectClaims, body)
	if err := json.Unmarshal([]byte(reply), &page); err != nil || code != "" {
		t.Fatalf("%s: %s %s, %v", body, code, reply, err)
	}
	return page
}

// namesOf are the tags of a page.
func namesOf(page bus.ClaimsPage) string {
	var names []string
	for _, c := range page.Claims {
		names = append(names, c.Tag)
	}
	return strings.Join(names, " ")
}

func TestClaims(t *testing.T) {
	t.Parallel()
	last := allocator.Claim{First: 11, Last: 20, Node: "n", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b := &book{entries: map[string]allocator.Entry{"a": {End: 21, Last: last}, "deleted": {End: 500}, "c": {End: 9}},
		errs: map[string]error{"b.x": fmt.Errorf("%w: %s", allocator.ErrDamaged, strings.Repeat("x", 100_000))}}
	nc, store := startEvidence(t, embedded.Config{}, b, "a", "b.x", "b.y", "c")
	maxID := int64(31)
	if _, err := store.Update(t.Context(), "a", allocator.Change{MaxID: &maxID}); err != nil {
		t.Fatal(err)
	}
	page := claims(t, nc, "")
	if page.Store != "mysql" || page.Next != "" || namesOf(page) != "a b.x b.y c" {
		t.Errorf("%+v", page)
	}
	if c := page.Claims[0]; c.End != 21 || c.MaxID != 31 || c.Last == nil || *c.Last != last || c.Problem != "" {
		t.Errorf("%+v", c)
	}
	if c := page.Claims[1]; c.End != 0 || c.MaxID != 1 || c.Last != nil || !strings.Contains(c.Problem, "damaged") || len(c.Problem) > 1000 {
		t.Errorf("%+v", c)
	}
	if c := page.Claims[3]; c.End != 9 || c.MaxID != 1 {
		t.Errorf("%+v", c)
	}
	for body, want := range map[string]string{
		`{"after":"b.x"}`:                       "b.y c",
		`{"after":"zzz"}`:                       "",
		`{"tags":["deleted","nosuch","a","a"]}`: "deleted nosuch a a",
		`{"tags":[]}`:                           "a b.x b.y c",
	} {
		page := claims(t, nc, body)
		got := namesOf(page)
		if page.Next != "" {
			got += ", next " + page.Next
		}
		if got != want || page.Claims == nil {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	if c := claims(t, nc, `{"tags":["deleted"]}`).Claims[0]; c.End != 500 || c.MaxID != 0 {
		t.Errorf("a deleted tag: %+v", c)
	}
	many := `{"tags":["a"` + strings.Repeat(`,"a"`, 1000) + `]}`
	for _, c := range []struct {
		subject, body string
		reason        bus.Reason
	}{
		{bus.SubjectClaims, `{"tags":["a"],"after":"a"}`, bus.BadRequest}, {bus.SubjectClaims, `{"tags":["a*"]}`, bus.BadTag},
		{bus.SubjectClaims, `{"tags":[""]}`, bus.BadTag}, {bus.SubjectClaims, many, bus.BadRequest}, {bus.SubjectClaims, `{"tag":"a"}`, bus.BadRequest},
		{bus.SubjectAudit, ``, bus.BadTag}, {bus.SubjectAudit, `{"tag":">"}`, bus.BadTag}, {bus.SubjectAudit, `{"tag":"nosuch"}`, bus.UnknownTag},
		{bus.SubjectTrace, ``, bus.BadTag}, {bus.SubjectTrace, `{"tag":"*","id":"5"}`, bus.BadTag}, {bus.SubjectTrace, `{"tag":"a"}`, bus.BadRequest},
		{bus.SubjectTrace, `{"tag":"nosuch","id":"5"}`, bus.UnknownTag}, {bus.SubjectTrace, `{"tag":"a","id":"0"}`, bus.BadRequest},
		{bus.SubjectTrace, `{"tag":"a","snowflake":"5"}`, bus.BadRequest}, {bus.SubjectTrace, `{"id":"5","snowflake":"5"}`, bus.BadRequest},
		{bus.SubjectTrace, `{"tag":"b.x","id":"5"}`, bus.StoreUnavailable},
	} {
		wantReason(t, nc, c.subject, c.body, c.reason)
	}
	b.mu.Lock()
	b.errs["a"] = fmt.Errorf("%w: no leader", allocator.ErrUnavailable)
	b.mu.Unlock()
	for subject, body := range map[string]string{bus.SubjectClaims: "", bus.SubjectAudit: `{"tag":"a"}`, bus.SubjectTrace: `{"tag":"a","id":"5"}`} {
		wantReason(t, nc, subject, body, bus.StoreUnavailable)
	}
}

// wantReason demands an error with a stable reason.
func wantReason(t *testing.T, nc *nats.Conn, subject, body string, want bus.Reason) {
	t.Helper()
	msg, err := nc.Request(subject, []byte(body), testkit.Patience)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	if err := bus.ReplyError(msg); !errors.Is(err, want) {
		t.Errorf("%s %.60s is answered with %.200s, want %s", subject, body, msg.Data, want)
	}
}

// A tag that is deleted, or made again, while its claims are read is not behind them.
func TestClaimsOfATagThatChanges(t *testing.T) {
	t.Parallel()
	b := &book{entries: make(map[string]allocator.Entry)}
	nc, store := startEvidence(t, embedded.Config{}, b, "deleted", "again")
	change := sync.OnceFunc(func() {
		for _, tag := range []string{"deleted", "again"} {
			gone, err := store.Delete(context.Background(), tag, 501)
			if err == nil && tag == "again" {
				_, err = store.Create(context.Background(), allocator.Tag{Name: tag, MaxID: gone.MaxID, Step: 10})
			}
			if err != nil {
				t.Error(err)
			}
			b.mu.Lock()
			b.entries[tag] = allocator.Entry{End: 501}
			b.mu.Unlock()
		}
	})
	b.onRead = func(context.Context, string) { change() } // the store was listed before
	for _, c := range claims(t, nc, "").Claims {
		if want := map[string]bus.ID{"deleted": 0, "again": 501}[c.Tag]; c.End != 501 || c.MaxID != want {
			t.Errorf("%+v, want max_id %d", c, want)
		}
	}
}

// A reply has as many tags as fit, and as can be read in time. Asking for the rest brings them all.
func TestClaimsComeInParts(t *testing.T) {
	t.Parallel()
	var tags []string
	b := &book{entries: make(map[string]allocator.Entry)}
	for i := range 40 {
		tags = append(tags, fmt.Sprintf("%s%02d", strings.Repeat("a", 100), i))
		b.entries[tags[i]] = allocator.Entry{End: 1}
	}
	nc, _ := startEvidence(t, smallMessages(t), b, tags...)
	want := strings.Join(tags, " ")
	all := func(timeout string) (paged, named string, requests int) {
		var pages, parts []string
		for req := (bus.ClaimsRequest{}); ; requests++ {
			page := timedClaims(t, nc, req, timeout)
			pages = append(pages, namesOf(page))
			if req.After = page.Next; page.Next == "" {
				break
			}
		}
		for rest := tags; len(rest) > 0; requests++ {
			page := timedClaims(t, nc, bus.ClaimsRequest{Tags: rest[:min(20, len(rest))]}, timeout)
			if page.Next != "" || len(page.Claims) == 0 {
				t.Fatalf("%+v", page)
			}
			parts, rest = append(parts, namesOf(page)), rest[len(page.Claims):]
		}
		return strings.Join(pages, " "), strings.Join(parts, " "), requests
	}
	if paged, named, requests := all("5000"); paged != want || named != want || requests < 6 || requests > 12 {
		t.Errorf("%d requests bring %q and %q", requests, paged, named)
	}
	b.onRead = func(ctx context.Context, _ string) { // a slow ledger
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if paged, named, requests := all("500"); paged != want || named != want {
		t.Errorf("%d requests to a slow ledger bring %q and %q", requests, paged, named)
	}
}

// An audit that does not fit into a message is refused. The caller does not wait in vain.
func TestAuditDoesNotFit(t *testing.T) {
	t.Parallel()
	b := &book{entries: map[string]allocator.Entry{"a": {End: 1}}}
	nc, _ := startEvidence(t, smallMessages(t), b, "a")
	testkit.Eventually(t, "the event stream", func() bool {
		_, err := nc.Request("leaf.events.info.segment.refill.a", []byte("garbage"), time.Second)
		return err == nil
	})
	for range 20 {
		if _, err := nc.Request("leaf.events.info.segment.refill.a", []byte("garbage"), testkit.Patience); err != nil {
			t.Fatal(err)
		}
	}
	wantReason(t, nc, bus.SubjectAudit, `{"tag":"a"}`, bus.Internal)
}

func timedClaims(t *testing.T, nc *nats.Conn, req bus.ClaimsRequest, timeout string) (page bus.ClaimsPage) {
	t.Helper()
	data, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := nc.RequestMsg(&nats.Msg{Subject: bus.SubjectClaims, Data: data, Header: nats.Header{"Leaf-Timeout": {timeout}}}, testkit.Patience)
	if err == nil {
		err = bus.ReplyError(msg)
	}
	if err == nil {
		err = json.Unmarshal(msg.Data, &page)
	}
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// Evidence that cannot be read in time is refused with timed_out: the store is not unavailable.
func TestEvidenceTakesTooLong(t *testing.T) {
	t.Parallel()
	b := &book{entries: map[string]allocator.Entry{"a": {End: 1}}}
	nc, _ := startEvidence(t, embedded.Config{}, b, "a")
	b.onRead = func(ctx context.Context, _ string) { <-ctx.Done() }
	for subject, body := range map[string]string{bus.SubjectAudit: `{"tag":"a"}`, bus.SubjectTrace: `{"tag":"a","id":"5"}`} {
		msg, err := nc.RequestMsg(&nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{"Leaf-Timeout": {"300"}}}, testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if err := bus.ReplyError(msg); !errors.Is(err, bus.TimedOut) || !strings.Contains(err.Error(), "leaf audit") {
			t.Errorf("%s: %.300s", subject, msg.Data)
		}
	}
}
