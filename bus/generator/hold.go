package generator

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// maxHold is how long claims are kept back for one change by an operator: a few times the way to a far JetStream and back.
const maxHold = time.Second

// holdRequest keeps the claims of a strict tag back, or lets them go on.
type holdRequest struct {
	Tag  string `json:"tag"`
	Held bool   `json:"held"`
}

// hold makes all generators keep back the claims of a tag, if it is strict, until release is called, but no longer than maxHold.
// Without that the write of an operator's change could lose to claims until its time is over.
func (g *Generator) hold(tag string) (release func()) {
	set := func(held bool) {
		if err := g.cfg.Conn.Publish(wire.SubjectHold, wire.Encode(holdRequest{tag, held})); err != nil {
			g.log.Debug("the claims of a strict tag cannot be kept back", "tag", tag, "error", err)
		}
	}
	set(true)
	return func() { set(false) }
}

// heardHold keeps claims back, also for a change that this generator writes.
func (g *Generator) heardHold(msg *nats.Msg) {
	var req holdRequest
	if err := json.Unmarshal(msg.Data, &req); err != nil {
		g.log.Warn("a request to keep claims back cannot be read", "error", err)
		return
	}
	d := time.Duration(0)
	if req.Held {
		d = maxHold
	}
	g.alloc.Hold(req.Tag, d)
}
