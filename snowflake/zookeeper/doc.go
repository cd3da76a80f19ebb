// Package zookeeper keeps the records of workers in ZooKeeper, where Leaf has
// them: it implements [snowflake.Registry].
//
//	/leaf/NAME/installation              the installation that owns all this, and its layout
//	                       /ID           the ID of this ZooKeeper: each write proves it
//	/leaf/NAME/leaf_forever/a-0000000007 a worker's record; sequential, permanent
//	/leaf/NAME/leaf_temporary/a          generator a runs; ends with its session. For people
//
// A record's node is named for the generator that made it. Its data say which worker it is. As in
// Leaf, that is its sequence number, counted from the low end of the generator's range, if this
// worker is free. A node is made together with a versioned write to its folder: of two generators
// that found the same workers, one makes it. A record changes by one versioned write.
//
// Only the records decide about uniqueness, see [snowflake.Registry]. Sessions decide nothing.
package zookeeper
