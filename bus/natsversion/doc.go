// Package natsversion keeps a generator away from NATS servers whose
// compare-and-set is broken: all that makes an ID unique is a compare-and-set.
//
// It knows a server by the version in its greeting (INFO), which a server sends
// before anything else. The greeting of each connection is read before the
// connection is used, so nothing is ever written through an old server. The other
// servers of the cluster are asked at the start, after each reconnect, when one of them
// comes or goes, and every 10 seconds (with TLS 5 minutes): one may lead the streams.
//
// A generator does not see the servers behind a gateway or a leaf node, nor those
// whose addresses the cluster does not advertise. Of these it sees the leaders of
// its own streams: a leader of 2.11 or later names its version in each answer.
package natsversion
