// Package installation decides which installation a generator is part of, and wires the generator
// to what belongs to it: a NATS with JetStream, a data folder and, where they are used, a database
// for the tags and a ZooKeeper for the workers.
//
// Each of these belongs to one installation and says so: the record in JetStream, the file
// installation in the folder, the row of leaf_installation, the node installation in ZooKeeper. Two
// generators that share one of them and not the others would hand out the same IDs. So a start
// looks at all of them and decides by one table: see rules. [Config.Generator] is the wiring, for
// leaf serve and for bustest.
package installation
