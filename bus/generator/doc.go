// Package generator is the service: it answers requests for IDs on one connection to NATS,
// hears the other generators, publishes events and does what operators ask for.
//
// The way of a request for segment IDs, in [Generator]:
//
//	message ─► bus.ParseRequest ─► allocator.Request ─┬─► bus.AppendReply ─► reply
//	                                                  └─► Waiter.Wait ─────► reply
//	                                                      (own goroutine)
package generator
