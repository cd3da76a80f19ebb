package generator

import (
	"context"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
)

// nodeAdmin does what operators ask of other generators. Its methods are safe for concurrent use. It has no lock,
// because it remembers nothing.
type nodeAdmin struct{ *base }

// forget makes all generators forget a lost one that is gone for good. One that is heard again is known again.
func (n *nodeAdmin) forget(_ context.Context, req admin.NodeName) (admin.NodeName, error) {
	runs := func(b heartbeat) bool { return b.Node == req.Node }
	switch {
	case req.Node == n.cfg.Node || slices.ContainsFunc(n.group.present(time.Now()), runs):
		return req, conflict("%s is running: stop it first (one that was killed counts as running for up to %v)", req.Node,
			heartbeatExpires)
	case !n.group.lost.back(req.Node):
		return req, badRequest("no generator with the name %q is lost: `leaf nodes` shows those that are", req.Node)
	}
	n.cfg.Log.Warn("an operator says that a generator is gone for good", "node", req.Node)
	n.heartbeats.send(heartbeat{Forgotten: req.Node})
	return req, nil
}
