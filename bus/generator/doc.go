// Package generator is the service: it answers requests for IDs on one connection to NATS,
// exchanges heartbeats and reservations with the other generators, publishes events and answers
// operators.
//
// The way of a request for segment IDs, in [Generator]:
//
//	message ─► wire.ParseRequest ─► allocator.Request ─┬─► wire.AppendReply ─► reply
//	                                                   └─► Later ────────────► reply
package generator
