// Package embedded runs a NATS server with JetStream inside the process.
//
// It exists so that a single binary is a whole installation: no NATS to set
// up first. Keep nats-server out of every other package, so that a service that
// only uses the client does not link a server.
//
// Four things differ from a nats-server started by hand, because IDs depend
// on them or because a default would surprise:
//
//   - Every acknowledged JetStream write has been synced to disk, whatever the
//     configuration file says, unless a stream itself asks for asynchronous
//     persistence. nats-server's own default syncs every two minutes, and a
//     power failure in between would hand out the same range of IDs twice.
//   - Clients are served on 127.0.0.1 unless an address is given. nats-server's
//     own default is every network interface.
//   - A client or another server that hangs is dropped within 4 s, unless the
//     configuration file sets ping_interval. nats-server's own default takes minutes,
//     and gives requests to it all the while.
//   - A listener that the network can reach without authentication is refused.
package embedded
