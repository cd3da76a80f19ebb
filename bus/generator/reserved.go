package generator

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// reserved is the message about a range that a generator has reserved. With tags in JetStream it is
// the only sign, beside a generator's own marks, that JetStream was restored.
type reserved struct {
	Tag   string `json:"tag"`
	First int64  `json:"first,string,omitempty"` // 0: the generator is of an older version
	End   int64  `json:"end,string"`             // the ID after the last
	Run   string `json:"run,omitempty"`          // the generator that holds the range, see heartbeat.ID
	// Installation is the one that the generator is part of.
	Installation string `json:"installation,omitempty"`
}

// publishReserved reports a range to the other generators, before an ID of it is handed out.
func (g *Generator) publishReserved(tag string, r allocator.Range) {
	msg := wire.Encode(reserved{tag, r.First, r.Last + 1, g.group.self, g.installation()})
	if err := g.cfg.Conn.Publish(wire.SubjectReserved, msg); err != nil {
		g.log.Debug("a range cannot be reported to the other generators", "tag", tag, "error", err)
	}
}

// heardReserved notes a range of another generator.
func (g *Generator) heardReserved(msg *nats.Msg) {
	var r reserved
	err := json.Unmarshal(msg.Data, &r)
	if err == nil {
		err = allocator.CheckTag(r.Tag)
	}
	if err == nil && (r.First < 0 || r.End <= r.First) {
		err = fmt.Errorf("no range goes from %d to %d", r.First, r.End-1)
	}
	if err != nil {
		g.log.Warn("a message about a reserved range cannot be read", "error", err)
		return
	}
	own := g.installation()
	switch {
	case r.Run == g.group.self:
	case r.Installation != "" && own != "" && r.Installation != own: // one of the two installations ends, see checkRival
	case r.First == 0:
		g.cfg.Marks.Observe(r.Tag, r.End)
	default:
		g.alloc.Reserved(r.Tag, allocator.Range{First: r.First, Last: r.End - 1})
	}
}

// installation is the ID of the installation; empty: not joined yet.
func (g *Generator) installation() string {
	if id := g.membership.identity.Load(); id != nil {
		return id.Installation
	}
	return ""
}
