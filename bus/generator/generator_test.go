package generator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// The error of a deletion names the generators that did not confirm it, and says what is in force.
func TestDeleteIsNotConfirmed(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	start(t, s, "n", memory(t, "order"), nil).stays(t, nc, "deaf") // it never answers
	testkit.Eventually(t, "it is heard", func() bool {
		_, err := admin.NewClient(nc).UpdateTag(t.Context(), admin.TagSpec{Tag: "order", MaxID: new(bus.ID(500))})
		return errors.Is(err, bus.TimedOut) && strings.Contains(err.Error(), "[deaf] did not confirm") && strings.Contains(err.Error(), "it may have happened: send it again")
	})
	var err error
	testkit.Eventually(t, "a deletion while NATS answers", func() bool {
		_, err = admin.NewClient(nc).DeleteTag(t.Context(), "order")
		if err == nil || !strings.Contains(err.Error(), "NATS does not answer") {
			return true
		}
		_, _ = admin.NewClient(nc).CreateTag(t.Context(), admin.TagSpec{Tag: "order"}) // not confirmed either
		return false
	})
	if !errors.Is(err, bus.TimedOut) || !strings.Contains(err.Error(), "[deaf] did not confirm") || !strings.Contains(err.Error(), "it is deleted") || strings.Contains(err.Error(), "again") {
		t.Errorf("DeleteTag: %v", err)
	}
}

// Two installations must not answer the same callers: the younger one's
// generators end, whichever came first.
func TestOlderInstallationStays(t *testing.T) {
	t.Parallel()
	then := time.Now().Add(-time.Hour)
	of := func(id string, created time.Time) func(*generator.Config) {
		return func(c *generator.Config) {
			c.Join = func(context.Context, func(context.Context) error) (generator.Identity, error) {
				return generator.Identity{Installation: id, Created: created}, nil
			}
		}
	}
	for name, younger := range map[string]func(*generator.Config){
		"by its age": of("A", then.Add(time.Minute)),
		"by its ID":  of("C", then),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			nc := natskit.Connect(t, s)
			shared := memory(t, "order")
			first := start(t, s, "first", shared, younger)
			start(t, s, "same", shared, younger)
			if _, code := ask(t, nc, "leaf.segment.order", ""); code != "" {
				t.Fatalf("two of one installation: code %s", code)
			}
			if _, err := first.Take(t.Context(), "order", 1); err != nil { // and so it has more in memory
				t.Fatal(err)
			}
			start(t, s, "older", memory(t, "order"), of("B", then))
			select {
			case err := <-first.ended():
				first.done <- err
				if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), "older") {
					t.Errorf("Run: %v; want it refused, and the node named", err)
				}
			case <-time.After(testkit.Patience):
				t.Fatal("the younger installation goes on")
			}
			if ids, err := first.Take(t.Context(), "order", 1); err == nil {
				t.Errorf("it gives %v to those in its process", ids)
			}
			testkit.Eventually(t, "only the older one is there", func() bool {
				states, err := admin.NewClient(nc).States(t.Context())
				return err == nil && len(states) == 1 && states[0].Node == "older"
			})
		})
	}
}
