// Package bus is everything that speaks NATS: the subjects, the form of
// requests and replies, the generator's services and events, and the client.
//
// The way of a request for segment IDs, in [Generator]:
//
//	message ─► ParseRequest ─► allocator.Request ─┬─► AppendReply ─► reply
//	                                              └─► Waiter.Wait ─► reply
//	                                                  (own goroutine)
//
// A service that imports the client links no NATS server and no database.
package bus
