package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

const (
	// askAgain is for how long a question is repeated that a generator could not answer: it may be starting, or its
	// database may be failing over.
	askAgain = 10 * time.Second
	// askPause is the pause between.
	askPause = 250 * time.Millisecond
)

// FromClient returns what the client of an installation can read. js is where the event stream is. Questions that no
// generator can answer now are repeated for up to 10 s.
func FromClient(c *admin.Client, js jetstream.JetStream) Source {
	reveal := func(ctx context.Context, req admin.RevealRequest) (admin.Revealed, error) {
		numbers, err := c.RevealIDs(ctx, req.Tag, req.IDs...)
		return admin.Revealed{Tag: req.Tag, Numbers: numbers}, err
	}
	return Source{JS: js, Claims: repeatedly(c.Claims), Workers: repeatedly(c.Workers), States: c.States, Reveal: repeatedly(reveal)}
}

// repeatedly returns ask, repeated while a generator answers that it cannot do so now.
func repeatedly[Req, Resp any](ask func(context.Context, Req) (Resp, error)) func(context.Context, Req) (Resp, error) {
	return func(ctx context.Context, req Req) (Resp, error) {
		for end := time.Now().Add(askAgain); ; {
			resp, err := ask(ctx, req)
			reason, _ := errors.AsType[bus.Reason](err)
			passes := slices.Contains([]bus.Reason{bus.StoreUnavailable, bus.NoWorkerID, bus.Draining, bus.Overloaded}, reason)
			if !passes || !time.Now().Before(end) {
				return resp, err
			}
			select {
			case <-time.After(askPause):
			case <-ctx.Done():
				return resp, err
			}
		}
	}
}
