// Package zookeeper keeps the records of workers in ZooKeeper, where Leaf has
// them: it implements [snowflake.Registry].
//
//	/leaf/NAME/installation              whose all this is, and its layout
//	                       /ID           which ZooKeeper this is: every write proves that it leads here
//	/leaf/NAME/leaf_forever/a-0000000007 a worker's record; sequential, for life
//	/leaf/NAME/leaf_temporary/a          generator a runs; gone with its session
//
// A record's node is named for the generator that made it. Its sequence number
// and the base in its data make the worker: with a base that is the low end of
// the generator's range, as usual, the first nodes are the first workers. All
// changes are one versioned write.
//
// Uniqueness rests on the records alone, see [snowflake.Registry]. The temporary
// node tells generators of the same name apart; no lease, session or watch
// decides anything else.
package zookeeper
