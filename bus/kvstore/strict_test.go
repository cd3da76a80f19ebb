package kvstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/fresh"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

var invoice = allocator.Tag{Name: "invoice", MaxID: 1, Order: allocator.Strict}

// strictStore returns a store of a generator with this name, and how often it has read the record of invoice from JetStream.
func strictStore(t *testing.T, s *embedded.Server, node string) (*Store, func() int) {
	t.Helper()
	cfg := newConfig(t, s)
	cfg.Node = node
	store := New(cfg)
	if err := store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := make(chan *nats.Msg, 10_000)
	sub, err := cfg.Conn.ChanSubscribe("$JS.API.>", asked)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	reads := 0
	return store, func() int {
		t.Helper()
		if err := cfg.Conn.Flush(); err != nil { // what came before is in the channel then
			t.Fatal(err)
		}
		for len(asked) > 0 {
			if m := <-asked; strings.Contains(m.Subject, ".GET.") {
				reads++
			}
		}
		return reads
	}
}

// reserve claims n IDs, without a conflict.
func reserve(t *testing.T, s *Store, n int64) allocator.Range {
	t.Helper()
	g, err := s.Reserve(t.Context(), "invoice", n, 1)
	if err != nil || g.Order != allocator.Strict || g.Len() != n {
		t.Fatalf("Reserve: %+v, %v; want %d IDs of a strict tag", g, err, n)
	}
	return g.Range
}

// A claim that comes right after another one is one write. A claim after a conflict, an error or a pause reads the record again.
func TestStrictClaimReads(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	one, reads := strictStore(t, s, "one")
	if _, err := one.Create(t.Context(), invoice); err != nil {
		t.Fatal(err)
	}
	next := int64(1)
	claim := func(n int64) (read int) {
		t.Helper()
		before := reads()
		if r := reserve(t, one, n); r.First != next {
			t.Fatalf("%v, want it to begin at %d", r, next)
		}
		next += n
		return reads() - before
	}
	if n := claim(3); n != 1 {
		t.Errorf("the first claim read %d times", n)
	}
	testkit.Eventually(t, "a claim without a read", func() bool { return claim(2) == 0 }) // the machine may be slow
	for at := time.Now(); time.Since(at) <= fresh.For; time.Sleep(fresh.For / 4) {
	}
	if n := claim(1); n != 1 {
		t.Errorf("after %v a claim read %d times", fresh.For, n)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := one.Reserve(ctx, "invoice", 1, 1); err == nil || errors.Is(err, allocator.ErrConflict) {
		t.Errorf("a claim that is not sent: %v", err)
	}
	if n := claim(1); n != 1 {
		t.Errorf("after an error a claim read %d times", n)
	}
}

// A conflict claims nothing. It names the generator that claimed last by the record as it was known. Then the record is read again.
func TestStrictConflict(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	one, reads := strictStore(t, s, "one")
	two, _ := strictStore(t, s, "two")
	if _, err := one.Create(t.Context(), invoice); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"", "one", "two"} {
		two.latest.Forget("invoice") // it would be of the claim before
		switch node {
		case "one":
			reserve(t, one, 5)
		case "two":
			reserve(t, two, 5)
		}
		var read revised
		var err error
		if read.Tag, read.revision, read.exists, err = load(t.Context(), *one.kv.Load(), "invoice"); err != nil {
			t.Fatal(err)
		}
		end := reserve(t, two, 7).Last + 1 // meanwhile
		one.latest.Put("invoice", read, time.Now().Add(time.Hour))
		_, err = one.Reserve(t.Context(), "invoice", 3, 1)
		overtaken, ok := errors.AsType[*allocator.OvertakenError](err)
		if !ok || overtaken.Node != node || overtaken.Tag != "invoice" || !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("%+v; want a conflict with a record of %q", err, node)
		}
		before := reads()
		if r := reserve(t, one, 3); r.First != end || reads() != before+1 {
			t.Errorf("after the conflict: %v with %d reads; want it to begin at %d, with one read", r, reads()-before, end)
		}
	}
}

// A tag that was created again is served at once, also where the watch has only just shown that it was deleted.
func TestStrictCreatedAgain(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	one, _ := strictStore(t, s, "one")
	two, _ := strictStore(t, s, "two")
	if _, err := one.Create(t.Context(), invoice); err != nil {
		t.Fatal(err)
	}
	end := reserve(t, one, 5).Last + 1
	if _, err := two.Delete(t.Context(), "invoice", 1); err != nil {
		t.Fatal(err)
	}
	var deleted revised
	var err error
	if deleted.Tag, deleted.revision, deleted.exists, err = load(t.Context(), *one.kv.Load(), "invoice"); err != nil || !deleted.Deleted {
		t.Fatal(deleted, err)
	}
	if _, err := two.Create(t.Context(), invoice); err != nil {
		t.Fatal(err)
	}
	one.latest.Put("invoice", deleted, time.Now().Add(time.Hour))
	if r := reserve(t, one, 1); r.First != end {
		t.Errorf("%v, want it to begin at %d", r, end)
	}
}

// The record says the order, for life: it outlives the tag.
func TestOrderIsForLife(t *testing.T) {
	t.Parallel()
	store, _ := strictStore(t, natskit.Start(t), "one")
	ctx := t.Context()
	other := map[allocator.Order]allocator.Tag{
		allocator.Strict: {Name: "invoice", MaxID: 1, Step: 10}, allocator.Trend: {Name: "order", MaxID: 1, Order: allocator.Strict},
	}
	for _, tag := range []allocator.Tag{invoice, {Name: "order", MaxID: 1, Step: 10}} {
		if _, err := store.Create(ctx, tag); err != nil {
			t.Fatal(err)
		}
		refused := func() {
			t.Helper()
			made, err := store.Create(ctx, other[tag.Order])
			if !errors.Is(err, allocator.ErrConflict) || errors.Is(err, allocator.ErrExists) || !strings.Contains(err.Error(), tag.Order.String()) {
				t.Errorf("%v tag %s was created with another order: %+v, %v", tag.Order, tag.Name, made, err)
			}
		}
		refused()
		if _, err := store.Create(ctx, tag); !errors.Is(err, allocator.ErrExists) {
			t.Errorf("created again: %v", err)
		}
		if _, err := store.Delete(ctx, tag.Name, 51); err != nil {
			t.Fatal(err)
		}
		refused()
		made, err := store.Create(ctx, tag)
		if err != nil || made.MaxID != 51 || made.Order != tag.Order {
			t.Errorf("created after the deletion: %+v, %v", made, err)
		}
	}
	step, end := int64(5), int64(1000)
	if _, err := store.Update(ctx, "invoice", allocator.Change{Step: &step}); !errors.Is(err, allocator.ErrBadValue) {
		t.Errorf("a step of a strict tag: %v", err)
	}
	if _, err := store.Update(ctx, "invoice", allocator.Change{MaxID: &end}); err != nil {
		t.Fatal(err)
	}
	if r := reserve(t, store, 4); r.First != end {
		t.Errorf("after max_id moved: %v", r)
	}
	if _, err := store.Delete(ctx, "invoice", 1); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the record of the claim is still known, and must not revive the tag
		if g, err := store.Reserve(ctx, "invoice", 1, 1); !errors.Is(err, allocator.ErrDeleted) && !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("a deleted tag: %v, %v", g, err)
		}
	}
}

// A strict tag takes exactly what is asked for, up to its last ID, and reserves nothing else.
func TestStrictExact(t *testing.T) {
	t.Parallel()
	store, _ := strictStore(t, natskit.Start(t), "one")
	ctx := t.Context()
	const top = 1<<63 - 1
	full := invoice
	full.MaxID = top - 5
	if _, err := store.Create(ctx, full); err != nil {
		t.Fatal(err)
	}
	if g, err := store.Reserve(ctx, "invoice", 0, 1); err != nil || g.Len() != 0 { // only asks whether the store can be written
		t.Errorf("a claim of nothing: %v, %v", g, err)
	}
	if g, err := store.Reserve(ctx, "invoice", 6, 1); !errors.Is(err, allocator.ErrExhausted) {
		t.Errorf("more than are left: %v, %v", g, err)
	}
	if r := reserve(t, store, 5); r.First != top-5 || r.Last != top-1 {
		t.Errorf("the last IDs: %v", r)
	}
	if g, err := store.Reserve(ctx, "invoice", 1, 1); !errors.Is(err, allocator.ErrExhausted) {
		t.Errorf("after the last ID: %v, %v", g, err)
	}
}

// A record that is behind what the generator knows is moved up, and nothing is claimed by that write.
func TestStrictMovedUp(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store, _ := strictStore(t, s, "one")
	if _, err := store.Create(t.Context(), invoice); err != nil {
		t.Fatal(err)
	}
	reserve(t, store, 10)
	restore := saveBucket(t, newConfig(t, s), bus.BucketTags)
	reserve(t, store, 100)
	restore()
	_, err := store.Reserve(t.Context(), "invoice", 1, 111)
	for errors.Is(err, allocator.ErrConflict) { // on the record of the bucket before
		if moved, ok := errors.AsType[*allocator.AdvancedError](err); ok {
			if moved.Got != 11 || moved.Seen != 111 {
				t.Errorf("%+v", moved)
			}
			break
		}
		_, err = store.Reserve(t.Context(), "invoice", 1, 111)
	}
	if err == nil {
		t.Error("a record that went backwards was not noticed")
	}
	if r := reserve(t, store, 2); r.First != 111 {
		t.Errorf("%v, want it to begin at 111", r)
	}
}

// late reports whether the bound of a read ended a call on a slow machine. A refill repeats such a call.
func late(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}

// claimStrictly claims IDs of a strict tag from several generators at once, while an operator moves max_id. Each claim that begins
// after another one has ended gets higher IDs.
func claimStrictly(ctx context.Context, t *testing.T, stores []*Store, rounds int) {
	t.Helper()
	if _, err := stores[0].Create(ctx, invoice); err != nil {
		t.Fatal(err)
	}
	var high atomic.Int64 // above all IDs of claims that have ended
	raise := func(to int64) {
		for old := high.Load(); old < to && !high.CompareAndSwap(old, to); old = high.Load() {
		}
	}
	var all allocatortest.Checker
	var callers sync.WaitGroup
	for i, store := range stores {
		callers.Go(func() {
			for n := range rounds {
				above := high.Load()
				g, err := store.Reserve(ctx, "invoice", int64(1+(n+i)%4), 1)
				for errors.Is(err, allocator.ErrConflict) || late(ctx, err) {
					if overtaken, ok := errors.AsType[*allocator.OvertakenError](err); !late(ctx, err) && (!ok || !strings.HasPrefix("node", overtaken.Node)) {
						t.Errorf("%+v", err)
					}
					g, err = store.Reserve(ctx, "invoice", int64(1+(n+i)%4), 1)
				}
				if err != nil || g.Len() != int64(1+(n+i)%4) || g.First < above {
					t.Errorf("%v, %v; want %d IDs from %d on", g.Range, err, 1+(n+i)%4, above)
					return
				}
				all.Add(g.Range)
				raise(g.Last + 1)
			}
		})
	}
	callers.Go(func() {
		for range 5 {
			to := high.Load() + 10_000
			if _, err := stores[0].Update(ctx, "invoice", allocator.Change{MaxID: &to}); err != nil {
				t.Errorf("max_id: %v", err)
			}
			raise(to)
		}
	})
	callers.Wait()
	ids, err := all.Check()
	if err != nil || ids < int64(len(stores)*rounds) {
		t.Errorf("%d IDs: %v", ids, err)
	}
	if high.Load() < 50_000 {
		t.Errorf("the highest ID is below %d: max_id was not moved", high.Load())
	}
}

func TestStrictClaimsInOrder(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	var stores []*Store
	for range 3 {
		store, _ := strictStore(t, s, "node")
		stores = append(stores, store)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*testkit.Patience) // for some thousand writes
	defer cancel()
	claimStrictly(ctx, t, stores, 200)
}

func TestStrictRecord(t *testing.T) {
	t.Parallel()
	strict := `{"tag":"invoice","max_id":"5","step":0,"order":"strict"}`
	for record, damaged := range map[string]bool{
		strict: false,
		`{"tag":"invoice","max_id":"5","order":"strict","deleted":true}`:    false,
		`{"tag":"invoice","max_id":"5","step":1000}`:                        false,
		`{"tag":"invoice","max_id":"5","step":1000,"order":""}`:             false,
		`{"tag":"invoice","max_id":"5","step":1000,"order":"strict"}`:       true,
		`{"tag":"invoice","max_id":"5","step":-1,"order":"strict"}`:         true,
		`{"tag":"invoice","max_id":"0","step":0,"order":"strict"}`:          true,
		`{"tag":"invoice","max_id":"5","step":0}`:                           true,
		`{"tag":"invoice","max_id":"5","step":1000,"order":"trend"}`:        true,
		`{"tag":"invoice","max_id":"5","step":1000,"order":"linearizable"}`: true,
		`{"tag":"invoice","max_id":"5","step":0,"order":"Strict"}`:          true,
		`{"tag":"invoice","max_id":"5","step":0,"order":7}`:                 true,
	} {
		tag, err := decodeTag("invoice", []byte(record))
		if damaged != errors.Is(err, allocator.ErrDamaged) || damaged != (err != nil) {
			t.Errorf("%s: %+v, %v", record, tag, err)
		}
	}
	if tag, _ := decodeTag("invoice", []byte(strict)); tag.Order != allocator.Strict || tag.Step != 0 || tag.MaxID != 5 {
		t.Errorf("%+v", tag)
	}
	for record, damaged := range map[string]bool{
		`{"end":"1","order":"strict"}`: false, `{"end":"1","order":"trend"}`: true, `{"end":"1","order":"x"}`: true, `{"end":"1","order":1}`: true,
		`{"order":"strict"}`: true,
	} {
		e, err := decodeEntry("invoice", []byte(record), 5)
		if damaged != errors.Is(err, allocator.ErrDamaged) || !damaged && e != (allocator.Entry{End: 1, Order: allocator.Strict, Revision: 5}) {
			t.Errorf("%s: %+v, %v", record, e, err)
		}
		if damaged && !strings.Contains(err.Error(), `'{"end":"1","order":"strict"}' if the tag is strict`) {
			t.Errorf("%s: %v", record, err)
		}
	}
}

// A generator of a version before strict tags refuses their records, and the markers of their names. Otherwise it would serve them
// from memory. These are the rules by which it decoded.
func TestOlderVersionsRefuseStrictRecords(t *testing.T) {
	t.Parallel()
	olderTag := func(value []byte) error {
		var record struct {
			Name  string `json:"tag"`
			MaxID int64  `json:"max_id,string"`
			Step  int64  `json:"step"`
		}
		if err := json.Unmarshal(value, &record); err != nil {
			return err
		}
		if record.Name != "invoice" || record.MaxID < 1 || record.Step < 1 {
			return allocator.ErrDamaged
		}
		return nil
	}
	olderEntry := func(value []byte) error {
		var record struct {
			End   int64           `json:"end,string"`
			Floor int64           `json:"floor,string,omitempty"`
			Last  allocator.Claim `json:"last,omitzero"`
		}
		decoder := json.NewDecoder(bytes.NewReader(value))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&record); err != nil {
			return err
		}
		if _, more := decoder.Token(); more != io.EOF || record.End < 1 || record.Floor < 0 || record.Floor > record.End {
			return allocator.ErrDamaged
		}
		return nil
	}
	s := natskit.Start(t)
	store, _ := strictStore(t, s, "one")
	ctx := t.Context()
	ledger, err := OpenLedger(ctx, store.cfg)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, refused bool) {
		t.Helper()
		entry, err := (*store.kv.Load()).Get(ctx, "invoice")
		if err != nil {
			t.Fatal(err)
		}
		if err := olderTag(entry.Value()); refused != (err != nil) {
			t.Errorf("%s: an older version reads %s as %v", what, entry.Value(), err)
		}
	}
	if _, err := store.Create(ctx, invoice); err != nil {
		t.Fatal(err)
	}
	check("created", true)
	reserve(t, store, 5)
	check("claimed", true)
	end := int64(100)
	if _, err := store.Update(ctx, "invoice", allocator.Change{MaxID: &end}); err != nil {
		t.Fatal(err)
	}
	check("moved", true)
	if _, err := store.Delete(ctx, "invoice", 1); err != nil {
		t.Fatal(err)
	}
	check("deleted", true)
	for order, refused := range map[allocator.Order]bool{allocator.Strict: true, allocator.Trend: false} {
		tag := fmt.Sprint("a.", order)
		if _, err := ledger.Write(ctx, tag, allocator.Entry{End: 1, Order: order}); err != nil {
			t.Fatal(err)
		}
		entry, err := ledger.kv.Get(ctx, ledgerKey+tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := olderEntry(entry.Value()); refused != (err != nil) {
			t.Errorf("an older version reads %s as %v", entry.Value(), err)
		}
	}
	trend := invoice
	trend.Name, trend.Order, trend.Step = "order", allocator.Trend, 10
	if _, err := store.Create(ctx, trend); err != nil {
		t.Fatal(err)
	}
	entry, err := (*store.kv.Load()).Get(ctx, "order")
	if err != nil || strings.Contains(string(entry.Value()), `"order":`) {
		t.Errorf("%s, %v: older versions must read tags of trend order", entry.Value(), err)
	}
}
