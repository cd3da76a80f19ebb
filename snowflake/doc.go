// Package snowflake issues IDs that are made of a time, a worker and a
// sequence number, after Twitter's Snowflake (2010) and Meituan's Leaf:
//
//	 63  62                                      22 21         12 11           0
//	┌───┬──────────────────────────────────────────┬─────────────┬─────────────┐
//	│ 0 │ milliseconds since the epoch    41 bits  │ worker   10 │ sequence 12 │
//	└───┴──────────────────────────────────────────┴─────────────┴─────────────┘
//	 sign    69 years                                 1,024         4,096 a ms
//
// The widths and the epoch are a [Layout].
//
// Elsewhere such IDs are unique as long as clocks are right and leases are
// kept in time. Here they trust no clock. A snowflake is a segment of time:
//
//  1. A worker and a stretch of time are reserved durably, by compare-and-set
//     in a [Registry], before they are used. The holder issues only times
//     before the end of what it reserved; a successor only times from there on.
//  2. A holder's restart is bounded by its [File] in the same way, only
//     finer: nothing is issued beyond a ceiling that is on disk, and a restart issues
//     only from there on.
//  3. Within a process times and sequence numbers only increase.
//  4. The file belongs to one place and the record to one incarnation. Whoever
//     finds another there is a stranger, and takes another worker.
//
// Clocks decide which time an ID carries and how soon somebody else may take a worker;
// never whether an ID is unique. The package knows neither NATS nor ZooKeeper:
// registries prove themselves with the suite in snowflaketest.
package snowflake
