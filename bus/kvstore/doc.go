// Package kvstore keeps the state of an installation in JetStream key-value
// buckets: the installation's record (bucket LEAF) and the tags (LEAF_TAGS).
//
// Every change is a compare-and-set on the revision that was just read. It
// decides alone; reads may be old. A write without an answer may have happened:
// what it reserved is lost, and the next attempt reads again.
package kvstore
