package generator_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
)

// flake asks for one snowflake, which must come, and takes it apart.
func flake(t *testing.T, nc *nats.Conn) snowflake.Parts {
	t.Helper()
	body, code := ask(t, nc, "leaf.snowflake", "")
	if code != "" {
		t.Fatalf("code %s: %s", code, body)
	}
	return parts(t, body)
}

func parts(t *testing.T, text string) snowflake.Parts {
	t.Helper()
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	p, err := snowflake.DefaultLayout().Decode(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// registry is one that can be taken away, and counts what it is asked.
type registry struct {
	snowflake.Registry
	away  atomic.Bool
	calls atomic.Int64
}

func newRegistry(r snowflake.Registry) *registry { return &registry{Registry: r} }

func (r *registry) asked() error {
	r.calls.Add(1)
	if r.away.Load() {
		return errors.New("the registry is away")
	}
	return nil
}

func (r *registry) List(ctx context.Context) ([]snowflake.Entry, error) {
	if err := r.asked(); err != nil {
		return nil, err
	}
	return r.Registry.List(ctx)
}

func (r *registry) Add(ctx context.Context, rec snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	if err := r.asked(); err != nil {
		return snowflake.Entry{}, err
	}
	return r.Registry.Add(ctx, rec, c)
}

func (r *registry) Put(ctx context.Context, rec snowflake.Record, version uint64) (uint64, error) {
	if err := r.asked(); err != nil {
		return 0, err
	}
	return r.Registry.Put(ctx, rec, version)
}

// halved is a database of which another generator takes every second ID, and is faster.
type halved struct {
	allocator.Numbers
	records allocator.Records
}

func (h halved) Advance(ctx context.Context, tag string, _, step, from int64) (allocator.Range, int64, error) {
	r, step, err := h.Numbers.Advance(ctx, tag, 2, step, from)
	if err != nil {
		return r, step, err
	}
	s, err := h.records.Load(ctx, tag)
	var t allocator.Tag
	if err == nil {
		t, err = s.Claim(allocator.Claim{First: r.First, Last: r.First, Run: "other"})
	}
	if err == nil {
		_, err = h.records.Swap(ctx, t, s.Revision)
	}
	return allocator.Range{First: r.Last, Last: r.Last}, step, err
}

// What NATS cannot carry in one message is an error, not silence.
func TestReplyTooLarge(t *testing.T) {
	t.Parallel()
	s := natskit.StartWith(t, configured(t, "max_payload: 4096"))
	nc := natskit.Connect(t, s)
	records, numbers := memory(t, "order"), allocatortest.NewMemoryNumbers()
	numbers.SetRow(allocator.Row{Name: "order", MaxID: 1, Step: 1})
	start(t, s, "n", records, func(cfg *generator.Config) { cfg.MaxWait, cfg.Numbers = testkit.Patience, halved{numbers, records} })
	for subject, n := range map[string]int64{"leaf.segment.order": 150, "leaf.snowflake": 150 * 4096} {
		body, code := ask(t, nc, subject, fmt.Sprintf(`{"count":%d}`, n))
		if code != "413" || !strings.Contains(body, `"reason":"batch_too_large"`) {
			t.Errorf("%s: code %q, %.100s", subject, code, body)
		}
		if body, code := ask(t, nc, subject, "10"); code != "" || count(t, body) != 10 {
			t.Errorf("%s, with fewer: code %s, %s", subject, code, body)
		}
	}
}
