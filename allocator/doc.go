// Package allocator hands out the IDs of segments: ranges that were reserved
// in a store, one write for many IDs, and are served from memory.
//
// The way of an ID:
//
//	Store.Reserve ──► marks ──► buffer ──► Request ──► caller
//	 (durable,        (did      (current   (takes from
//	  one write        the       and next   memory, or
//	  per range)       store     segment)   waits for a
//	                   go back?)            refill)
//
// Four rules keep IDs unique. They hold whatever clocks, networks and stores do:
//
//  1. A range reaches memory only after the store has confirmed it. A write
//     without an answer is a lost range: a gap, never a repetition.
//  2. A range must start at or above the end of every range of its tag that
//     was seen before the request to the store (see [Marks]). If it does not,
//     the store went backwards, and nothing is served from it.
//  3. A tag has at most one refill under way.
//  4. Nothing that was reserved is given back.
//
// The package knows neither NATS nor SQL. A store implements [Store] and passes
// the suite in allocatortest.
package allocator
