package generator_test

import (
	"sync"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
)

// As many callers as a generator works for at a time, each with one request after the other, are never refused.
func TestCallersOfAllSlots(t *testing.T) {
	t.Parallel()
	const callers, requests = 64, 50 // callers is what docs/limits.md promises
	s := natskit.Start(t)
	start(t, s, "g1", memory(t, "order"), nil)
	var all sync.WaitGroup
	for range callers {
		nc := natskit.Connect(t, s)
		all.Go(func() {
			for range requests {
				if reply, code := ask(t, nc, bus.SubjectTagsGet, `{"tag":"order"}`); code != "" {
					t.Error(reply)
					return
				}
			}
		})
	}
	all.Wait()
}
