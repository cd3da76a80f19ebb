package generator_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// inJetStream returns the records and keys of a generator.
func inJetStream(t *testing.T, s *embedded.Server) kept {
	t.Helper()
	nc := natskit.Connect(t, s)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	k := newKept(nc, js)
	if err := k.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

// keeping gives a generator of a test the keys.
func keeping(k kept) func(*generator.Config) {
	return func(cfg *generator.Config) { cfg.Keys = k.keys }
}

// startOpaque starts a generator that has the opaque tag coupon.
func startOpaque(t *testing.T, cfg embedded.Config, domain string) (*nats.Conn, *running) {
	t.Helper()
	s := natskit.StartWith(t, cfg)
	store := inJetStream(t, s)
	r := start(t, s, "one", store, keeping(store))
	nc := natskit.Connect(t, s)
	if reply, code := ask(t, nc, admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"`+domain+`"}`); code != "" {
		t.Fatalf("%s %s", reply, code)
	}
	return nc, r
}

// idsOf reads an answer of which each line, or range, must be one ID of the domain.
func idsOf(t *testing.T, d opaque.Domain, ranges []bus.Range, err error) (ids []bus.ID) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range ranges {
		if r.Len() != 1 || r.First > d.Last() {
			t.Fatalf("the answer has %v", r)
		}
		ids = append(ids, bus.ID(r.First))
	}
	return ids
}

// Answers over NATS and HTTP have IDs alone, those of one generator's numbers without a gap. Events have numbers.
// Nothing shows the key.
func TestOpaqueAnswers(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := inJetStream(t, s)
	var lines bytes.Buffer
	var writing sync.Mutex
	r := start(t, s, "one", store, func(cfg *generator.Config) {
		keeping(store)(cfg)
		cfg.Log = slog.New(slog.NewTextHandler(locked{&writing, &lines}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	nc := natskit.Connect(t, s)
	list := eventsOn(t, nc)
	shown, code := ask(t, nc, admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"d12"}`)
	if code != "" {
		t.Fatal(shown, code)
	}
	var ids []bus.ID
	add := func(ranges []bus.Range, err error) { ids = append(ids, idsOf(t, "d12", ranges, err)...) }
	for _, body := range []string{"", "1", "5", "256", "257", "3000", `{"count":1}`, `{"count":300}`} {
		reply, err := nc.Request("leaf.segment.coupon", []byte(body), testkit.Patience)
		if err != nil || len(reply.Header) > 0 {
			t.Fatalf("%s: %+v, %v", body, reply, err)
		}
		text := reply.Data
		if strings.HasPrefix(body, "{") {
			var parsed struct {
				Count  int64
				Ranges []struct{ First, Last bus.ID }
			}
			if err := json.Unmarshal(text, &parsed); err != nil || int(parsed.Count) != len(parsed.Ranges) {
				t.Fatalf("%s: %s, %v", body, text, err)
			}
			for _, r := range parsed.Ranges {
				add([]bus.Range{{First: int64(r.First), Last: int64(r.Last)}}, nil)
			}
			continue
		}
		ranges, err := wire.ParseReply(text)
		add(ranges, err)
	}
	for _, n := range []int64{1, 2, 2500} {
		add(r.Take(t.Context(), "coupon", n))
	}
	numbers, seen := make([]bus.ID, 0, len(ids)), make(map[bus.ID]bool)
	for at := 0; at < len(ids); at += 1000 {
		some, err := admin.NewClient(nc).RevealIDs(t.Context(), "coupon", ids[at:min(at+1000, len(ids))]...)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, some...)
	}
	for i, n := range numbers {
		if seen[n] || int(n) > 2*len(ids) {
			t.Fatalf("ID %d has the number %d, which came before, or is too large", ids[i], n)
		}
		seen[n] = true
	}
	refills := list("leaf.segment.refill")
	if len(refills) == 0 || !strings.Contains(string(refills[0].Data), `"first":"1"`) {
		t.Errorf("the refill events are %v", refills)
	}
	master := keyOf(t, nc)
	writing.Lock()
	defer writing.Unlock()
	shown += lines.String()
	for _, what := range []string{"leaf.tag.created", "leaf.segment.refill", "leaf.node.started"} {
		for _, e := range list(what) {
			shown += string(e.Data)
		}
	}
	for _, key := range [][]byte{master, opaque.DeriveKey(master, "coupon", "d12")} {
		for _, secret := range []string{base64.StdEncoding.EncodeToString(key), fmt.Sprintf("%x", key), fmt.Sprint(key), string(key)} {
			if strings.Contains(shown, secret) {
				t.Error("the key is shown")
			}
		}
	}
}

type locked struct {
	mu  *sync.Mutex
	out *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

// keyOf is the master key.
func keyOf(t *testing.T, nc *nats.Conn) []byte {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), wire.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), "master")
	var record struct{ Key []byte }
	if err == nil {
		err = json.Unmarshal(entry.Value(), &record)
	}
	if err != nil || len(record.Key) != opaque.MasterSize {
		t.Fatal(err)
	}
	return record.Key
}

// A batch that does not fit into a message is refused before its numbers are taken, and the error has the bound. A
// batch of that size fits.
func TestOpaqueBatch(t *testing.T) {
	t.Parallel()
	nc, r := startOpaque(t, configured(t, "max_payload: 2560"), "63")
	r.takeAll(t, "coupon", 1)
	taken := func() int64 {
		t.Helper()
		var held struct{ Buffers []struct{ Taken bus.ID } }
		reply, code := ask(t, nc, admin.SubjectBuffers, `{"prefix":"coupon"}`)
		if err := json.Unmarshal([]byte(reply), &held); err != nil || code != "" || len(held.Buffers) != 1 {
			t.Fatalf("%s %s, %v", code, reply, err)
		}
		return int64(held.Buffers[0].Taken)
	}
	for _, form := range []string{"%d", `{"count":%d}`} {
		before := taken()
		reply, code := ask(t, nc, "leaf.segment.coupon", fmt.Sprintf(form, 100_000))
		var refusal struct{ Message, Reason string }
		var asked, most int
		err := json.Unmarshal([]byte(reply), &refusal)
		if err == nil {
			_, err = fmt.Sscanf(refusal.Message, "%d IDs were requested of the opaque tag coupon, whose answers list each ID: at most %d fit", &asked, &most)
		}
		if err != nil || code != "413" || refusal.Reason != "batch_too_large" || taken() != before {
			t.Fatalf("%s %s, %v; %d numbers were taken, then %d", code, reply, err, before, taken())
		}
		if reply, code := ask(t, nc, "leaf.segment.coupon", fmt.Sprintf(form, most)); code != "" {
			t.Errorf("%d IDs: %s %s", most, code, reply)
		}
		if reply, code := ask(t, nc, "leaf.segment.coupon", fmt.Sprintf(form, most+1)); code != "413" {
			t.Errorf("%d IDs: %s %s", most+1, code, reply)
		}
	}
	ranges, err := r.Take(t.Context(), "coupon", 5000) // over HTTP there is no message
	if len(idsOf(t, "63", ranges, err)) != 5000 {
		t.Error("a batch over HTTP")
	}
	// The client divides what it can.
	n := 0
	for _, err := range bus.NewClient(nc).IDs(t.Context(), "coupon", 5000) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 5000 {
		t.Errorf("the client got %d IDs", n)
	}
}

// The work on large batches is bounded. More of them are refused before numbers are taken for them, over NATS and HTTP,
// and may be sent again soon. Small requests are answered meanwhile.
func TestTooManyBatchesToConceal(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := inJetStream(t, s)
	r := start(t, s, "one", store, keeping(store))
	nc := natskit.Connect(t, s)
	if reply, code := ask(t, nc, admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"d9","step":10000000}`); code != "" {
		t.Fatal(reply, code)
	}
	r.takeAll(t, "coupon", 1)
	const n = 50_000
	wait := runtime.GOMAXPROCS(0) * 500_000 / n // batches that may wait
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	answered := map[string]int{}
	receive := func() {
		msg, err := replies.NextMsg(testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		answered[msg.Header.Get("Nats-Service-Error-Code")]++
	}
	release := r.HoldConcealing()
	const more = 20
	for range wait + more {
		if err := nc.PublishRequest("leaf.segment.coupon", replies.Subject, []byte(strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
	if reply, code := ask(t, nc, "leaf.segment.coupon", "256"); code != "" {
		t.Errorf("a small request: %s %s", code, reply)
	}
	if ids := r.Concealing(); ids > int64(wait*n) { // the small request came after all of them
		t.Errorf("%d IDs wait", ids)
	}
	for range more {
		receive()
	}
	if answered["429"] != more {
		t.Errorf("while %d batches wait, the others are answered with %v", wait, answered)
	}
	if r.Concealing() > 0 { // they wait only for a second
		left := r.Left("coupon")
		var e *bus.Error
		if ranges, err := r.Take(t.Context(), "coupon", n); !errors.As(err, &e) || e.Reason != bus.Overloaded || e.RetryAfter == 0 {
			t.Errorf("over HTTP: %d ranges, %v", len(ranges), err)
		}
		if r.Left("coupon") < left && r.Concealing() > 0 { // a refill may add some
			t.Error("numbers were taken for a request that was refused")
		}
	}
	release()
	for range wait {
		receive()
	}
	testkit.Eventually(t, "nothing waits any more", func() bool { return r.Concealing() == 0 })
	ranges, err := r.Take(t.Context(), "coupon", n)
	if ids := idsOf(t, "d9", ranges, err); len(ids) != n {
		t.Errorf("after that %d IDs come", len(ids))
	}
	testkit.Eventually(t, "nothing waits again", func() bool { return r.Concealing() == 0 })
}
