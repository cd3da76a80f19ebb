// Package allocator hands out the IDs of segments: ranges that were reserved
// in a store, one write for many IDs, and are served from memory.
//
// The way of an ID:
//
//	Store.Reserve ──► claim ──► mark ──► buffer ──► Request ──► caller
//	 (durable,        (in the   (own     (current   (takes from
//	  one write        Ledger)   file)    and next   memory, or
//	  per range)                          segment)   waits for a
//	                                                 refill)
//
// A store in a database has a [Ledger] beside it, see [WithLedger]. In other stores reserving is
// claiming.
//
// Four rules keep IDs unique, whatever clocks and networks do. They hold as long as store and
// ledger do not forget the same range:
//
//  1. A range reaches memory only after the store has confirmed it, and the ledger has
//     accepted its claim. A write without an answer is a lost range: a gap, never a repetition.
//  2. A range begins at or above the end of all ranges of its tag that are known: the ledger's
//     end, and what was seen before the request to the store (see [Marks]). A store
//     below that went backwards. It is moved up, or the tag is refused.
//  3. A tag has at most one refill under way.
//  4. Nothing that was reserved is given back.
//
// A strict tag has no segments: each claim takes what the waiting requests need, and nothing is kept. See [Strict].
//
// The package knows neither NATS nor SQL. A store implements [Store] and passes
// the suite in allocatortest, a ledger implements [Ledger] and passes the one there for ledgers.
package allocator
