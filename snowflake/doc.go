// Package snowflake issues IDs that are made of a time, a worker and a
// sequence number, after Twitter's Snowflake (2010) and Meituan's Leaf:
//
//	 63  62                                      22 21         12 11           0
//	+---+------------------------------------------+-------------+-------------+
//	| 0 | milliseconds since the epoch    41 bits  | worker   10 | sequence 12 |
//	+---+------------------------------------------+-------------+-------------+
//	 sign    69 years                                 1,024         4,096 a ms
//
// The widths and the epoch are a [Layout]. One may have fewer bits, such as 53 for JavaScript, and
// count the time in units of up to a second. The time of an ID is where its unit begins. So a unit
// belongs to one reservation, even if the reservation ends amid it.
//
// Elsewhere such IDs are unique only while clocks are right and leases are renewed in time. Here
// they trust no clock. A snowflake is a segment of time:
//
//  1. A worker and a stretch of time are reserved durably, by compare-and-set in a [Registry],
//     before they are used. The holder issues only times before the end of its reservation.
//     The next holder issues only times from there on.
//  2. The holder's [File] bounds its restart in the same way, only finer. Nothing is issued
//     above a ceiling that is on disk, and a restart issues only times from there on.
//  3. Within a process times and sequence numbers only increase.
//  4. The file belongs to one data folder and the record to one incarnation. A generator that
//     finds another one there takes another worker.
//
// What a generator does next about its worker is in decide.go, and when it may issue in issue.go.
//
// There is one unit of time: int64 milliseconds, since 1970 for a moment. Records, files and IDs
// have it anyway. Floors and reservations begin and end with a unit of the layout. A time.Duration
// is only in [Config], in [BackwardsError], and where a goroutine sleeps.
//
// Clocks decide which time an ID carries, and how soon another generator may take a worker. They
// never decide whether an ID is unique. The package knows neither NATS nor ZooKeeper. Each
// registry must pass the suite in snowflaketest.
package snowflake
