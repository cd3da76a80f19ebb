package generator_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// loseKeys removes the bucket of the master key.
func loseKeys(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err == nil {
		err = js.DeleteKeyValue(t.Context(), wire.BucketKeys)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// unchecked are keys that nobody looks at, so that a lost one is not written back.
type unchecked struct{ generator.Keys }

func (unchecked) Check(context.Context, allocator.Tag) error { return nil }

// deaf are records whose watch brings nothing.
type deaf struct{ allocator.Records }

func (deaf) Watch(ctx context.Context, _ func(allocator.Update)) error {
	<-ctx.Done()
	return ctx.Err()
}

// Without its key a generator conceals no numbers of another one, and hands out none as they are.
func TestNumbersWithoutTheKey(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	first, second := inJetStream(t, s), inJetStream(t, s)
	full, _ := startIn(t, s, "full", "x", first, func(cfg *generator.Config) { cfg.Keys = unchecked{first.keys} })
	nc := natskit.Connect(t, s)
	if reply, code := ask(t, nc, admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"53"}`); code != "" {
		t.Fatal(reply, code)
	}
	full.takeAll(t, "coupon", 10)
	loseKeys(t, nc)
	dry, away := startIn(t, s, "dry", "x", deaf{second}, keeping(second))
	testkit.Eventually(t, "both hear each other", func() bool { return full.Hears("dry") && dry.Hears("full") })
	away.away.Store(true)
	if ranges, err := dry.Take(t.Context(), "coupon", 3); err == nil {
		t.Errorf("it handed out %v", ranges)
	}
	away.away.Store(false)
	testkit.Eventually(t, "a refusal that names the bucket", func() bool {
		ranges, err := dry.Take(t.Context(), "coupon", 3)
		if err == nil {
			t.Fatalf("it handed out %v", ranges)
		}
		return errors.Is(err, bus.StoreUnavailable) && strings.Contains(err.Error(), "LEAF_KEYS")
	})
	full.takeAll(t, "coupon", 10) // it has the key in memory
}

// A lost master key is found, and written back by a generator that has it. Nobody makes another one while one is
// heard that has seen an opaque tag, even if everything else is lost.
func TestMasterIsLost(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	first, second := inJetStream(t, s), inJetStream(t, s)
	one := start(t, s, "one", first, func(cfg *generator.Config) { cfg.Keys = unchecked{first.keys} })
	nc := natskit.Connect(t, s)
	if reply, code := ask(t, nc, admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"53"}`); code != "" {
		t.Fatal(reply, code)
	}
	one.takeAll(t, "coupon", 10)
	loseKeys(t, nc)
	two := start(t, s, "two", second, keeping(second))
	testkit.Eventually(t, "it hears the other one", func() bool { return two.Hears("one") })
	testkit.Eventually(t, "it says that the key is lost", func() bool {
		two.CheckKeys(t.Context())
		return strings.Contains(two.Readiness().Reasons["keys"], "LEAF_KEYS")
	})
	gift := allocator.Tag{Name: "gift", Order: "opaque-53"}
	none := func(context.Context) (string, error) { return "", nil }
	testkit.Eventually(t, "it hears of the tag", func() bool {
		id, err := two.MakeKey(t.Context(), gift, none)
		if err == nil {
			t.Fatalf("a second key: %s", id)
		}
		return errors.Is(err, allocator.ErrUnavailable) && strings.Contains(err.Error(), "the generator one knows opaque tags")
	})
	entry, err := first.Load(t.Context(), "coupon")
	if err == nil {
		err = first.keys.Check(t.Context(), entry.Tag)
	}
	if err != nil {
		t.Fatal(err)
	}
	if two.CheckKeys(t.Context()); two.Readiness().Reasons["keys"] != "" {
		t.Errorf("after a repair: %+v", two.Readiness())
	}
	two.takeAll(t, "coupon", 10)
	loseKeys(t, nc)
	two.CheckKeys(t.Context())
	if _, err := two.MakeKey(t.Context(), gift, none); err != nil || keyOf(t, nc) == nil || two.Readiness().Reasons["keys"] != "" {
		t.Errorf("a generator that has the key: %v, %+v", err, two.Readiness())
	}
}
