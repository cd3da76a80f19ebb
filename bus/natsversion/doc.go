// Package natsversion keeps a generator away from NATS servers whose
// compare-and-set is broken: only a compare-and-set makes an ID unique.
//
// It knows a server by the version in its greeting (INFO), which a server sends
// before anything else. It reads the greeting of each connection before the
// connection is used, so nothing is ever written through an old server. It asks the other
// servers of the cluster at the start, after each reconnect, when a server comes or goes,
// and every 10 seconds (with TLS 5 minutes), because one of them may lead the streams.
//
// A generator does not see the servers behind a gateway or a leaf node, nor those
// whose addresses the cluster does not advertise. Of these it sees the leaders of
// its own streams: a leader of 2.11 or later names its version in each answer.
package natsversion
