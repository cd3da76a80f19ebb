package generator_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// stays publishes heartbeats of a generator that is not there until the test ends.
func (r *running) stays(t *testing.T, nc *nats.Conn, node string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for tick := time.NewTicker(500 * time.Millisecond); ; {
			nc.Publish(wire.SubjectPresence, []byte(`{"node":"`+node+`","id":"run-of-`+node+`","unix_ms":1}`))
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	testkit.Eventually(t, "the heartbeat of "+node, func() bool { return r.Hears(node) })
}

// answer is what a generator has in force.
type answer struct {
	Run string `json:"run"`
	allocator.Known
}

// pushes calls f with each record that is pushed and wants an answer, and the answer that obeys it. The result of f is
// sent as that of the generator near.
func pushes(t *testing.T, nc *nats.Conn, f func(allocator.Tag, answer) answer) {
	t.Helper()
	_, err := nc.Subscribe(wire.SubjectRecord, func(msg *nats.Msg) {
		var p struct{ Record allocator.Tag }
		if err := json.Unmarshal(msg.Data, &p); err != nil {
			t.Error(err)
		}
		if msg.Reply == "" {
			return
		}
		obeys := answer{"run-of-near", allocator.Known{Floor: p.Record.Below(), Rules: p.Record.Rules}}
		if err := msg.Respond(wire.Encode(f(p.Record, obeys))); err != nil {
			t.Error(err)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A change is done when each generator has said that it is in force. After a restore one may have rules with the same
// version, or with a higher one: the sender then writes its own again, above these.
func TestRulesInForceAreAbove(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in      func(rec allocator.Tag, obeys answer, n int) answer // what the other generator answers to the nth push
		version int64
	}{
		"it obeys": {func(_ allocator.Tag, obeys answer, _ int) answer { return obeys }, 1},
		"it has a higher version": {func(rec allocator.Tag, obeys answer, _ int) answer {
			if rec.Version < 8 {
				obeys.Rules = allocator.Rules{Version: 7}
			}
			return obeys
		}, 8},
		"it has other rules of the same version": {func(rec allocator.Tag, obeys answer, _ int) answer {
			if rec.Version == 1 {
				obeys.Rules = allocator.Rules{Version: 1, Limit: 5}
			}
			return obeys
		}, 2},
		"it has older rules at first": {func(_ allocator.Tag, obeys answer, n int) answer {
			if n < 3 {
				obeys.Rules = allocator.Rules{}
			}
			return obeys
		}, 1},
		"it has a lower floor at first": {func(_ allocator.Tag, obeys answer, n int) answer {
			if n < 3 {
				obeys.Floor = 0
			}
			return obeys
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			records := memory(t, "order")
			n, last := 0, answer{}
			pushes(t, nc, func(rec allocator.Tag, obeys answer) answer {
				n++
				last = c.in(rec, obeys, n)
				return last
			})
			start(t, s, "one", records, nil).stays(t, nc, "near")
			update(t, nc, `{"tag":"order","paused":true,"max_id":"500"}`)
			got := records.Snapshot()["order"]
			if !got.Paused || got.Version != c.version || got.Floor != 500 {
				t.Errorf("the record is %+v, want it paused with version %d", got.Tag, c.version)
			}
			if nc.Flush(); last.Rules != got.Rules || last.Floor != 500 { // its answers came before that of the command
				t.Errorf("the other generator has %+v in force when the change is done", last)
			}
		})
	}
}

// The answer to a change names the generators that are lost: one may be cut off and still hand out IDs.
func TestLostGeneratorsAreNamed(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	one := start(t, s, "one", memory(t, "order"), nil)
	one.report(t, nc, "cut", "")
	one.report(t, nc, "left", `,"gone":true`)
	testkit.Eventually(t, "it is silent", func() bool { return !one.Hears("cut") })
	pause := admin.TagSpec{Tag: "order", RulesChange: idspace.RulesChange{Paused: new(true)}}
	got, err := admin.NewClient(nc).UpdateTag(t.Context(), pause)
	if err != nil || !slices.Equal(got.Unheard, []string{"cut"}) {
		t.Errorf("%+v, %v; want only cut to be named", got, err)
	}
}

// All generators hear that the claims of a tag are kept back before the record is changed, so that the change of a
// busy strict tag does not lose to claims.
func TestHoldComesBeforeTheChange(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	held := make(chan string, 10)
	_, err := nc.Subscribe(wire.SubjectRecord, func(msg *nats.Msg) { held <- string(msg.Data) })
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	store := memory(t)
	withInvoice(t, store)
	own, first := store.Open(), ""
	start(t, s, "one", writing{own, func(ctx context.Context, tag allocator.Tag, revision uint64) (uint64, error) {
		select {
		case first = <-held:
		case <-ctx.Done():
		}
		return own.Swap(ctx, tag, revision)
	}}, nil)
	for _, c := range []struct{ subject, body string }{
		{admin.SubjectTagsUpdate, `{"tag":"invoice","max_id":"50"}`}, {admin.SubjectTagsDelete, `{"tag":"invoice"}`},
	} {
		if reply, code := ask(t, nc, c.subject, c.body); code != "" {
			t.Errorf("%s %s", code, reply)
		}
		if !strings.Contains(first, `"hold_ms":1000`) || !strings.Contains(first, `"tag":"invoice"`) {
			t.Errorf("%s: before the record was written it sent %s", c.subject, first)
		}
		nc.Flush() // what it pushed has come
		for len(held) > 0 {
			<-held
		}
	}
	ask(t, nc, admin.SubjectTagsUpdate, `{"tag":"invoice","max_id":"60"}`) // it is deleted
	for _, hold := range []string{`"hold_ms":1000`, `"hold_ms":-1`} {
		select {
		case got := <-held:
			if !strings.Contains(got, hold) {
				t.Errorf("a change that is refused sends %s, not %s", got, hold)
			}
		case <-time.After(testkit.Patience):
			t.Fatalf("a change that is refused does not send %s", hold)
		}
	}
}

// A claim of a strict tag waits while an operator changes the record, until that is pushed.
func TestClaimsAreKeptBack(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := memory(t)
	withInvoice(t, store)
	add(t, store, allocator.Tag{Name: "receipt", Order: allocator.Strict})
	var writes atomic.Int64
	own := store.Open()
	one := start(t, s, "one", writing{own, func(ctx context.Context, tag allocator.Tag, revision uint64) (uint64, error) {
		if tag.Name == "invoice" {
			writes.Add(1)
		}
		return own.Swap(ctx, tag, revision)
	}}, nil)
	one.takeAll(t, "invoice", 1)
	early := 0
	const rounds = 5
	for range rounds {
		ask(t, nc, wire.SubjectRecord, `{"record":{"tag":"other"}}`) // answered after what was sent before
		if err := nc.Publish(wire.SubjectRecord, []byte(`{"record":{"tag":"invoice"},"hold_ms":1000}`)); err != nil {
			t.Fatal(err)
		}
		ask(t, nc, wire.SubjectRecord, `{"record":{"tag":"other"}}`)
		before, taken := writes.Load(), make(chan error)
		go func() { _, err := one.Take(context.Background(), "invoice", 1); taken <- err }()
		testkit.Eventually(t, "the claim waits, or is written", func() bool {
			return writes.Load() > before || one.State().Counts.Waiting > 0
		})
		one.takeAll(t, "receipt", 1) // begun later, so a claim that does not wait is written before
		if writes.Load() > before {
			early++
		}
		changed := map[string]allocator.Tag{"record": store.Snapshot()["invoice"].Tag}
		ask(t, nc, wire.SubjectRecord, string(wire.Encode(changed)))
		if err := <-taken; err != nil {
			t.Error(err)
		}
	}
	if early > rounds/2 { // a busy machine may be slower than the second
		t.Errorf("%d of %d claims did not wait", early, rounds)
	}
}

// A generator that is heard, and does not say what it knows of a name, does not stop its creation. While all records
// are lost it does: it may be the only one that knows how far the name was.
func TestSilentGeneratorAtACreation(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	records := memory(t)
	one := start(t, s, "one", records, nil)
	one.stays(t, nc, "silent")
	client := admin.NewClient(nc, admin.Timeout(testkit.Patience))
	if got, err := client.CreateTag(t.Context(), admin.TagSpec{Tag: "order"}); err != nil || got.MaxID != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	records.SetErr(allocator.ErrTagsLost)
	high := bus.ID(5000)
	_, err := client.CreateTag(t.Context(), admin.TagSpec{Tag: "coupon", MaxID: &high})
	if err == nil || !strings.Contains(err.Error(), "[silent]") {
		t.Errorf("while all records are lost: %v", err)
	}
	if _, there := records.Snapshot()["coupon"]; there {
		t.Error("it was created")
	}
	knows := `{"run":"run-of-silent","end":"7001","floor":"6000","paused":true,"rules_version":"4"}`
	if _, err = nc.Subscribe(wire.SubjectRecord, func(msg *nats.Msg) { msg.Respond([]byte(knows)) }); err != nil {
		t.Fatal(err)
	}
	_, err = client.CreateTag(t.Context(), admin.TagSpec{Tag: "coupon", MaxID: &high})
	if got := records.Snapshot()["coupon"]; got.MaxID != 7001 || got.Floor != 7001 || got.Paused || got.Version != 5 {
		t.Errorf("it knows, and the record is %+v (%v)", got.Tag, err)
	}
	if err != nil && !errors.Is(err, bus.TimedOut) { // it has not confirmed
		t.Error(err)
	}
}
