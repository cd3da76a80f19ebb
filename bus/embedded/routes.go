package embedded

import (
	"context"
	"time"

	"github.com/leafbus/leafbus/internal/wire"
)

// routeAnswers is how long a server may take to answer at a route.
const routeAnswers = time.Second

// Routes returns the ID of the server at each route of the configuration, by host and port:
// [nats.Conn.ConnectedServerId] of that server's clients. The ID is empty if no server answers. The server's own
// address may be among the routes.
func (s *Server) Routes(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, routeAnswers)
	defer cancel()
	return wire.ServerIDs(ctx, s.routes, s.secure)
}
