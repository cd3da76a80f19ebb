// Package bus is what a service imports that gets its IDs over NATS. In reading order:
//
//   - [Connect], [ConnectWith] or [NewClient] return a [Client]. [Option] changes it: [Timeout],
//     [NoHedging], [OnCall].
//   - [Client.Tag] returns the handle of a [Tag]: [Tag.Next] returns one ID, [Tag.Take] n of them
//     as [Range] values. The client has the same calls with the name of a tag, and for snowflakes.
//   - [Client.Pool] returns a [Pool], which keeps IDs in memory. [Ahead] is its [PoolOption].
//   - [Client.IDs] and [Client.Ranges] are loops over many IDs. [Batch] and [Parallel] are their
//     [BulkOption] values.
//   - [Source] is one of these, or the fake of package bustest.
//   - [Client.Decode] returns a snowflake [Decoded].
//   - An [Error] has a [Reason]. [ReplyError] reads it from a reply of plain NATS.
//   - [ID] is an ID that is a string in JSON, because many IDs are above 2^53, and JavaScript
//     cannot read such numbers exactly. All others are int64.
//   - [Client.Stats] returns [Stats], and OnCall gets a [Call], for metrics.
//
// Package admin, below this one, is for operators, and package events follows what generators
// publish. A service that imports this package links no NATS server and no database.
package bus
