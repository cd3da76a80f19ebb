package generator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// failing are records whose writes fail as fail says. It counts them.
func failing(r allocator.Records, fail func(ctx context.Context) error, writes *atomic.Int64) writing {
	return writing{open(r), func(ctx context.Context, _ allocator.Tag, _ uint64) (uint64, error) {
		writes.Add(1)
		return 0, fail(ctx)
	}}
}

// A generator passes a change on if its store certainly did not do it. Else the error says so, and names the generator.
func TestPassAdmin(t *testing.T) {
	t.Parallel()
	away := func(context.Context) error { return allocator.ErrUnavailable }
	for name, c := range map[string]struct {
		fail       func(context.Context) error // of the store of one
		other      func(context.Context) error // of the store of two; nil: it does it
		code, says string                      // "": each change is done
	}{
		"unavailable":                   {fail: away},
		"not an error of the allocator": {fail: func(context.Context) error { return errors.New("unplugged") }},
		"hung": {fail: func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", allocator.ErrUnavailable, ctx.Err())
		}},
		"uncertain": {fail: func(context.Context) error {
			return fmt.Errorf("%w: %w", allocator.ErrUncertain, allocator.ErrUnavailable)
		},
			code: "504", says: "generator one: "},
		"refused":   {fail: func(context.Context) error { return idspace.ErrBadValue }, code: "400", says: "illegal value"},
		"both away": {fail: away, other: away, code: "503", says: ": order: the store is unavailable; generator "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			shared := memory(t, "order")
			var writes atomic.Int64
			var whole allocator.Records = shared
			if c.other != nil {
				whole = failing(shared, c.other, new(atomic.Int64))
			}
			one, two := start(t, s, "one", failing(shared, c.fail, &writes), nil), start(t, s, "two", whole, nil)
			testkit.Eventually(t, "they hear each other", func() bool { return one.Hears("two") && two.Hears("one") })
			refused := 0
			for done := writes.Load(); writes.Load() < done+3; {
				body, code := ask(t, nc, admin.SubjectTagsUpdate, `{"tag":"order","step":20}`)
				if code != "" && (code != c.code || !strings.Contains(body, c.says)) || c.code == "" && !strings.Contains(body, `"step":20`) {
					t.Fatalf("code %q, %s", code, body)
				}
				if code != "" {
					refused++
				}
			}
			if refused == 0 && c.code != "" {
				t.Error("no change was refused")
			}
			for _, node := range []string{"one", "two"} {
				if s, _ := state(t, nc, node); len(s.Counts.Errors) > 0 {
					t.Errorf("%s counts commands among the callers that it refused: %v", node, s.Counts.Errors)
				}
			}
		})
	}
}
