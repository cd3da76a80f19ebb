// Package audit checks that no ID was claimed twice. It compares the events in JetStream with the
// records of tags and the registry of workers, and changes nothing.
//
// A generator writes the record of a tag before the event of the claim. An audit reads the events
// first, then the records. On a healthy installation a record is therefore at least as high as each
// event that was read before it, also while generators claim. A lower record is a contradiction.
//
// An audit knows the events that the stream still has. Of older claims it knows only the last one
// of each tag, which is in the tag's record. It keeps about 80 bytes for each event.
//
// For operators who lost records, [Gather] says how far generators and events know tags to be in
// use.
package audit
