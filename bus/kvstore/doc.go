// Package kvstore keeps the state of an installation in JetStream: its record, the records of all
// tags, of the workers and of keys in key-value buckets, and the stream of its events.
//
// Every change of a record is a compare-and-set on the revision that was read. It decides alone;
// reads may be old. A write without an answer may have happened: what it reserved is lost, and the
// next attempt reads again.
package kvstore
