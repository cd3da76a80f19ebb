// Package audit checks that no ID was claimed twice, by comparing what is written down in different places: the
// records of tags, the database, the registry of workers, and the events in JetStream. It changes nothing.
//
// A generator writes in this order: database, record, event. An audit reads in the opposite order: events, records,
// database. On a healthy installation each number is at least as high as the one that was read before it, also while
// generators claim. A lower number is a contradiction.
//
// An audit knows the events that the stream still has. Of older claims it knows only the last one of each tag, which
// is in the tag's record.
//
// Memory grows with the number of tags and with the number of gaps between claims. It does not grow with the number of
// events.
package audit
