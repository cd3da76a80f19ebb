// Package allocator hands out the IDs of segments: ranges that were reserved
// in a store, one write for many IDs, and are served from memory.
//
// The way of an ID:
//
//	Store.Reserve ──► marks ──► buffer ──► Request ──► caller
//	 (durable,        (does     (current   (takes from
//	  one write        the       and next   memory, or
//	  per range)       store     segment)   waits for a
//	                   go back?)            refill)
//
// Four rules keep IDs unique. They hold whatever clocks, networks and stores do:
//
//  1. A range reaches memory only after the store has confirmed it. A write
//     whose answer was lost is a lost range: a gap, never a repetition.
//  2. A range must start at or above the end of every range of its tag that
//     was seen before it was asked for (see [Marks]). Otherwise the store went
//     backwards, and nothing is served from it.
//  3. A tag has at most one refill under way.
//  4. Nothing that was reserved is given back.
//
// The package knows neither NATS nor SQL: stores implement [Store] and prove
// it with the suite in allocatortest.
package allocator
