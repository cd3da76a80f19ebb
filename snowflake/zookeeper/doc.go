// Package zookeeper keeps the records of workers in ZooKeeper, where Leaf has
// them: it implements [snowflake.Registry].
//
//	/leaf/NAME/installation              the installation that owns all this, and its layout
//	                       /ID           the ID of this ZooKeeper: each write proves that it leads here
//	/leaf/NAME/leaf_forever/a-0000000007 a worker's record; sequential, permanent
//	/leaf/NAME/leaf_temporary/a          generator a runs; the node ends with its session
//
// A record's node is named for the generator that made it. Its sequence number
// and the base in its data make the worker: with a base that is the low end of
// the generator's range, as usual, the first nodes are the first workers. All
// changes are one versioned write.
//
// Only the records decide about uniqueness, see [snowflake.Registry]. The temporary
// node tells generators of the same name apart. Sessions decide nothing else.
package zookeeper
