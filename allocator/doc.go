// Package allocator hands out the IDs of segments: ranges that were claimed in the record of a tag,
// one write for many IDs, and are served from memory.
//
// The way of an ID:
//
//	propose ──► claim ──► mark ──► push ──► buffer ──► Request ──► caller
//	(from the   (in the   (own     (to the  (current   (takes from
//	 record, or  record)   file)    others)  and next   memory, or
//	 Numbers)                                segment)   waits for a
//	                                                    refill)
//
// Four rules keep IDs unique, whatever clocks and networks do. They hold as long as records and
// numbers do not forget the same range:
//
//  1. A range reaches memory only after its record was written by compare-and-set. A write without
//     an answer is a lost range: a gap, never a repetition.
//  2. A range begins at or above the end of all ranges of its tag that are known: the record's end,
//     and what was seen before the request (see [Index]). A store below that went backwards. It is
//     moved up.
//  3. A tag has at most one refill under way.
//  4. Nothing that was reserved is given back.
//
// A strict tag has no segments: each claim takes what the waiting requests need, and nothing is
// kept. See [Strict].
//
// The package knows neither NATS nor SQL. [Records] and [Numbers] are implemented elsewhere, and
// pass the suites in allocatortest.
package allocator
