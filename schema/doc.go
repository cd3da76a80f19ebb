// Package schema keeps tags where Leaf keeps them: in the table leaf_alloc of
// a MySQL or MariaDB database, a row each; it may have another name (Config.Table). [Store] implements
// [github.com/leafbus/leafbus/allocator.Store].
//
// A range is reserved in one round trip, by one statement:
//
//	UPDATE leaf_alloc SET max_id = LAST_INSERT_ID(GREATEST(max_id, 1) + amount)
//	 WHERE biz_tag = tag AND step = step AND max_id >= from
//
// Its answer carries the new max_id. The range is what lies between that and
// the amount below it, and the amount is a number of ours, so nothing is
// computed from what was read before; the step that is expected stands in the condition, so a
// row that an operator has changed matches no longer, and is read again. All IDs below from are in
// use. A row below it went backwards: it is moved above from by one conditional statement, or
// refused where other programs write to the table too (Config.Shared).
//
// A statement without an answer may have been done: its range is a gap.
// Nothing is repeated but what the server says it has undone (a deadlock), and
// that by the caller.
//
// Two small tables stand beside it. leaf_mark has what leaf_alloc has no
// columns for: where an operator moved max_id to, and how far a deleted tag was.
// leaf_installation has an ID of the database, and that of the installation
// that uses it.
package schema
