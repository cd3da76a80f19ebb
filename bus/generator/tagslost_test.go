package generator_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// g1 stops before coupon exists, LEAF_TAGS is removed, and g1 starts with both tags, beside g2, which knows. Nothing
// may be handed out twice. With a database both tags go on by themselves, under the rules that g2 knows; without one
// they wait until an operator ends the loss.
func TestTagsLost(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]bool{"records alone": false, "a database": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			numbers := allocatortest.NewMemoryNumbers()
			folders := map[string]*allocator.Index{"g1": allocator.NewIndex(), "g2": allocator.NewIndex()}
			run := func(node string, tags ...string) *running {
				return start(t, s, node, nil, func(c *generator.Config) {
					inKV(c)
					c.Index, c.MaxWait = folders[node], testkit.Patience/80
					if database {
						c.Numbers = numbers
					}
					for _, tag := range tags {
						c.Tags = append(c.Tags, allocator.Tag{Name: tag, MaxID: 1, Step: 1000})
					}
				})
			}
			var ids allocatortest.Checker
			var last int64
			take := func(r *running, tag string) error {
				ranges, err := r.Take(t.Context(), tag, 10)
				if tag == "coupon" {
					ids.Add(ranges...)
					for _, got := range ranges {
						last = max(last, got.Last)
					}
				}
				return err
			}
			g1, g2 := run("g1", "order"), run("g2", "order")
			for _, r := range []*running{g1, g2} {
				if err := take(r, "order"); err != nil {
					t.Fatal(err)
				}
			}
			if err := g2.stop(); err != nil {
				t.Fatal(err)
			}
			g2 = run("g2", "order", "coupon")
			if err := g1.stop(); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "coupon has a limit", func() bool { // a slow start is ready before its tags are
				_, code := ask(t, nc, admin.SubjectTagsUpdate, `{"tag":"coupon","limit":"1000000"}`)
				return code == ""
			})
			for range 500 {
				if err := take(g2, "coupon"); err != nil {
					t.Fatal(err)
				}
			}
			if err := js.DeleteStream(t.Context(), "KV_"+wire.BucketTags); err != nil {
				t.Fatal(err)
			}
			stream := eventsOn(t, nc)
			g1 = run("g1", "order", "coupon")
			records := inJetStream(t, s)
			if err := records.Err(); !errors.Is(err, allocator.ErrTagsLost) {
				t.Errorf("the records are not lost: %v", err)
			}
			tags := []string{"order", "coupon"}
			if database {
				for _, tag := range tags {
					testkit.Eventually(t, tag+" goes on", func() bool { return take(g1, tag) == nil && take(g2, tag) == nil })
				}
				for range 500 {
					if err := errors.Join(take(g1, "coupon"), take(g2, "coupon")); err != nil {
						t.Fatal(err)
					}
				}
				testkit.Eventually(t, "the limit is there again", func() bool {
					got, err := records.Load(t.Context(), "coupon")
					return err == nil && got.Limit == 1_000_000
				})
			} else {
				testkit.Eventually(t, "what is in memory has an end", func() bool {
					return take(g1, "coupon") != nil && take(g2, "coupon") != nil // one may have lent nothing in time
				})
				for _, r := range []*running{g1, g2} {
					for _, tag := range tags {
						testkit.Eventually(t, r.node+" says why "+tag+" has an end", func() bool {
							_, err := r.Take(t.Context(), tag, 5000)
							return errors.Is(err, bus.StoreUnavailable)
						})
					}
				}
				testkit.Eventually(t, "the alert", func() bool { return len(stream("leaf.records.unavailable")) == 2 })
				if got, err := records.Load(t.Context(), "coupon"); err != nil || got.Revision != 0 {
					t.Errorf("somebody made the record %+v, %v", got, err)
				}
				if err := records.EndLoss(t.Context()); err != nil {
					t.Fatal(err)
				}
				testkit.Eventually(t, "the tag can be made again", func() bool {
					got, err := admin.NewClient(nc).CreateTag(t.Context(), admin.TagSpec{Tag: "coupon"})
					if err == nil && int64(got.MaxID) <= last {
						t.Errorf("it begins again at %d, and %d was handed out", got.MaxID, last)
					}
					return err == nil
				})
				for _, r := range []*running{g1, g2} {
					testkit.Eventually(t, "it is served again", func() bool { return take(r, "coupon") == nil })
				}
			}
			if _, err := ids.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}
