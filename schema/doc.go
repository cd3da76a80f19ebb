// Package schema keeps the numbers of tags where Leaf keeps them: in the table leaf_alloc of a
// MySQL or MariaDB database, a row each; it may have another name (Config.Table). [Database]
// implements [github.com/leafbus/leafbus/allocator.Numbers].
//
// A range is taken in one round trip, by one statement:
//
//	UPDATE leaf_alloc SET max_id = LAST_INSERT_ID(GREATEST(max_id, 1) + amount)
//	 WHERE biz_tag = tag AND step = step AND max_id >= from
//
// Its answer carries the new max_id. The range is what lies between that and
// the amount below it, and the amount is a number of ours, so nothing is
// computed from what was read before. The step that is expected stands in the condition, so a
// row whose step was changed matches no longer, and is read again. All IDs below from are in
// use. A row below it went backwards: one conditional statement moves it above from.
//
// A statement without an answer may have been done: its range is a gap.
// Nothing is repeated but what the server says it has undone (a deadlock).
//
// Two small tables stand beside it. leaf_mark has names that are or were in use: how far, and of
// which kind of tag. So a row that SQL makes again goes on above all that was handed out, even if
// the tags' records are lost. leaf_installation has an ID of the database, and that of the
// installation that uses it.
package schema
