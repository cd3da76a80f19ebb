//go:build mutations

package schema

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// mutation is a change of the code that breaks a promise.
type mutation struct {
	name  string
	by    string // the test that finds it, if not the conformance suite
	edits []mutate.Edit
}

// TestMutations demands that a test finds each mutation. It checks the tests, not the code: `make mutations`.
func TestMutations(t *testing.T) {
	runner := mutate.Runner{By: "TestConformance", Says: `(?m)^\s+\w+\.go:\d+: (.*)`}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) { runner.Run(t, m.by, m.edits...) })
	}
}

var mutations = []mutation{
	// A range is one statement with its condition, and its answer is checked.
	{name: "a range below what is known to be in use is handed out", edits: []mutate.Edit{{"advance.go",
		"BETWEEN ? AND ?\",\n		amount, tag, tag, step, from, math.MaxInt64-amount)",
		"<= ?\",\n		amount, tag, tag, step, math.MaxInt64-amount)"}}},
	{name: "a range is taken by a step that was changed", by: "TestAdvanceStep", edits: []mutate.Edit{{"advance.go",
		"\" AND step = ? AND max_id", "\" AND ? > 0 AND max_id"}}},
	{name: "the step that was expected is returned for another one", by: "TestAdvanceStep", edits: []mutate.Edit{{"advance.go",
		"		step = row.Step\n", "		step = 1\n"}}},
	{name: "a range may pass the largest number", by: "TestAdvanceEnds", edits: []mutate.Edit{{"advance.go",
		"step, from, math.MaxInt64-amount)", "step, from, int64(math.MaxInt64))"}}},
	{name: "a range has fewer than was asked for", by: "TestAdvanceEnds", edits: []mutate.Edit{{"advance.go",
		"		if left < n {", "		if left < 1 {"}}},
	{name: "the statement changed two rows, and its answer counts", by: "TestAdvanceUnfit", edits: []mutate.Edit{{"advance.go",
		"if affected != 1 || end-amount < 1 {", "if end-amount < 1 {"}}},
	{name: "the range begins where max_id is after the statement", edits: []mutate.Edit{{"advance.go",
		"	return end - amount, nil", "	return end, nil"}}},
	{name: "max_id of another program at 0 is taken as it is", by: "TestAdvanceEnds", edits: []mutate.Edit{{"advance.go",
		"LAST_INSERT_ID(GREATEST(max_id, 1) + ?)", "LAST_INSERT_ID(max_id + ?)"}}},
	{name: "a max_id below 0 counts", by: "TestAdvanceDamaged", edits: []mutate.Edit{{"advance.go",
		"max_id >= 0 AND ", ""}}},
	{name: "a step that no row may have is taken from a record", by: "TestAdvanceDamaged", edits: []mutate.Edit{{"advance.go",
		"min(max(step, 1), allocator.LimitStep)", "step"}}},

	// A database that went backwards.
	{name: "max_id moves down", edits: []mutate.Edit{{"write.go", "max_id = GREATEST(max_id, ?)", "max_id = ?"}}},
	{name: "a replica answers Peek", by: "TestLocked", edits: []mutate.Edit{{"row.go",
		"Where(named, tag, tag).For(\"UPDATE\"))", "Where(named, tag, tag))"}}},

	// A name goes on above all that it was.
	{name: "a mark moves down", by: "TestMarks", edits: []mutate.Edit{{"write.go", "mark = GREATEST(mark, ?)", "mark = ?"}}},
	{name: "a mark loses its kind", by: "TestMarks", edits: []mutate.Edit{{"write.go", "kind = IF(? = '', kind, ?)", "kind = IF(? = '', ?, kind)"}}},
	{name: "marks ignore letters' case", by: "TestMarks", edits: []mutate.Edit{{"migrate.go",
		"CREATE TABLE IF NOT EXISTS leaf_mark (\\n\" +\n		\"  biz_tag varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
		"CREATE TABLE IF NOT EXISTS leaf_mark (\\n\" +\n		\"  biz_tag varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"}}},
	{name: "a removal forgets the ranges that were taken", by: "TestMarks", edits: []mutate.Edit{{"write.go", "max(mark, row.MaxID), kind)", "max(mark, row.MaxID-row.MaxID), kind)"}}},
	{name: "a removal is done by half", by: "TestBroken", edits: []mutate.Edit{{"write.go", "note(ctx, tx, tag", "note(ctx, o.db, tag"}}},
	{name: "a tag that is removed amid Peek is missed", by: "TestRemoveBetween", edits: []mutate.Edit{
		{"row.go", "		row, err := o.lock(ctx, o.db, tag)\n		if err == nil {\n", "		err := error(nil)\n		if err == nil {\n"},
		{"row.go", "tag).For(\"UPDATE\"))\n		}\n", "tag).For(\"UPDATE\"))\n		}\n		row, err := o.lock(ctx, o.db, tag)\n"}}},
	{name: "a tag that is removed amid Rows is missed", by: "TestRemoveBetween", edits: []mutate.Edit{{"row.go",
		"o.rows(tx, &rows)", "o.rows(o.db, &rows)"}}},
	{name: "a write that the server undid fails", by: "TestDeadlocked", edits: []mutate.Edit{{"write.go", "			if !undone(err) {", "			if true {"}}},
	{name: "names that differ in letters' case are one tag", by: "TestNamesOfOthers", edits: []mutate.Edit{{"row.go",
		"CAST(CONVERT(biz_tag USING utf8mb4) AS BINARY) = CAST(? AS BINARY)", "? <> ''"}}},

	// The table.
	{name: "our table ignores letters' case", by: "TestRights", edits: []mutate.Edit{{"migrate.go",
		"COLLATE utf8mb4_bin NOT NULL,\\n\" +\n	\"  max_id", "COLLATE utf8mb4_general_ci NOT NULL,\\n\" +\n	\"  max_id"}}},
	{name: "a name that is no tag reaches the database", by: "TestNamesThatAreNoTags", edits: []mutate.Edit{{"database.go",
		"if err := idspace.CheckTag(tag); err != nil {", "if err := idspace.CheckTag(\"order\"); err != nil {"}}},
	{name: "a statement looks for its row in all of the table", by: "TestLocked", edits: []mutate.Edit{{"row.go",
		"const named = \"biz_tag = ? AND", "const named = \"CONCAT(biz_tag, '') = ? AND"}}},
	{name: "a description that does not fit is an outage", by: "TestDescriptions", edits: []mutate.Edit{{"errors.go",
		"case 1264, 1366, errNoDefault, 1406:", "case 1264, errNoDefault, 1406:"}}},
	{name: "a table that can be NULL is used", by: "TestRefused", edits: []mutate.Edit{{"check.go",
		"case c.Nullable != \"NO\":", "case false:"}}},
	{name: "a table with small steps is refused", by: "TestAccepted", edits: []mutate.Edit{{"check.go",
		"!strings.HasSuffix(c.Type, \"int\") ||", "c.Type != \"int\" && c.Type != \"bigint\" ||"}}},
	{name: "a row that cannot be served is", by: "TestRowsUnfit", edits: []mutate.Edit{{"row.go",
		"idspace.CheckTag(a.BizTag), a.check()", "idspace.CheckTag(\"order\"), a.check()"}}},
	{name: "a table that lost its engine is used", by: "TestAltered", edits: []mutate.Edit{{"check.go",
		"} else if table.Engine != \"InnoDB\" {", "} else if false {"}}},

	// Whose database it is, and where the connection leads.
	{name: "another installation's database is served", by: "TestOwnerChanges", edits: []mutate.Edit{{"installation.go",
		"case err == nil && now != *had:", "case err == nil && now == (owner{}):"}}},
	{name: "the database of another installation counts as ours", by: "TestClaimOfOthers", edits: []mutate.Edit{{"installation.go",
		"return have.Installation, have.Store, nil", "return installation, have.Store, nil"}}},
	{name: "a database that was claimed meanwhile is claimed again", by: "TestClaimBetween", edits: []mutate.Edit{{"installation.go",
		"o.db.NewInsert().Ignore().Model(&want)", "o.db.NewInsert().On(\"DUPLICATE KEY UPDATE\").Model(&want)"}}},
	{name: "tables are made in a database that nobody claims", by: "TestClaimOnlyLooks", edits: []mutate.Edit{{"migrate.go",
		"case err == nil && owned && slices.Contains(missing, \"leaf_installation\"):", "case err == nil && owned && false:"}}},
	{name: "a lost owner is made again", by: "TestOwnerChanges", edits: []mutate.Edit{{"installation.go",
		"		err = fmt.Errorf(\"%w: the database has lost", "		_ = o.claim(ctx, *had)\n		err = fmt.Errorf(\"%w: the database has lost"}}},
	{name: "an address that leads to another database is used", by: "TestAddressLeadsElsewhere", edits: []mutate.Edit{{"access.go",
		"row[1]) != want.Store {", "row[1]) == \"\" {"}}},
	{name: "a replica is written to", by: "TestServerSettings", edits: []mutate.Edit{{"access.go",
		"	return errReadOnly\n", "	return nil\n"}}},

	// Which table has the tags.
	{name: "a table is made beside one in capital letters", by: "TestTableInOtherLetters", edits: []mutate.Edit{{"migrate.go",
		"return strings.EqualFold(name, t.name) })", "return false && strings.EqualFold(name, t.name) })"}}},
	{name: "an installation begins a second table", by: "TestOneTable", edits: []mutate.Edit{{"migrate.go",
		"case err == nil && have.Alloc != d.cfg.Table && !", "case false && !"}}},

	// How the database is reached.
	{name: "a right that is missing shows when it is needed", by: "TestRights", edits: []mutate.Edit{{"migrate.go",
		"		\"DELETE FROM ?alloc WHERE biz_tag IS NULL\",\n", ""}}},
	{name: "an error shows the password", by: "TestBadDSN", edits: []mutate.Edit{{"dsn.go",
		"return nil, errors.New(\"the DSN has an address or a parameter that cannot be read; want \" +",
		"return nil, errors.New(err.Error() + \"the DSN has an address or a parameter that cannot be read; want \" +"}}},
	{name: "a server that is silent is waited for", by: "TestSilentServer", edits: []mutate.Edit{{"errors.go",
		"case errors.Is(err, context.DeadlineExceeded): //", "case false: //"}}},
	{name: "a new password takes a restart", by: "TestPasswordChanges", edits: []mutate.Edit{{"access.go",
		"if a.cfg.Reread != nil {", "if false {"}}},
	{name: "a password that is being written counts", by: "TestPasswordChanges", edits: []mutate.Edit{{"access.go",
		"	if err == nil {\n		err = a.read(dsn)\n	}", "	if err == nil {\n		err = a.read(dsn)\n	}\n	if err != nil {\n		a.last.Store(new(target))\n	}"}}},
	{name: "skip-verify trusts any authority", by: "TestTLS", edits: []mutate.Edit{{"access.go",
		"		if to.InsecureSkipVerify {", "		if false {"}}},
	{name: "a DSN goes without TLS although there are files for it", by: "TestTLS", edits: []mutate.Edit{{"access.go",
		"	case cfg.AllowFallbackToPlaintext || cfg.TLSConfig == \"false\":", "	case false:"}}},
	{name: "a wrong password counts as an outage", by: "TestNobodyLetIn", edits: []mutate.Edit{{"errors.go",
		"	1045: adviceLogin, ", "	"}}},
	{name: "connections to a node that left its cluster are kept", by: "TestStepDown", edits: []mutate.Edit{{"errors.go",
		"	if !errors.Is(err, context.Canceled) {", "	if number(err) == 0 && !errors.Is(err, context.Canceled) || errors.Is(err, errReadOnly) {"}}},

	// Connections: what a DSN or the server sets must not count.
	{name: "a DSN makes rows that were found count as changed", by: "TestForced", edits: []mutate.Edit{{"dsn.go",
		"	cfg.ClientFoundRows = false", "	"}}},
	{name: "a DSN switches autocommit off", by: "TestHostileDSN", edits: []mutate.Edit{{"dsn.go",
		"SET autocommit = 1, ", "SET "}}},
	{name: "a DSN asks for a read-only session", by: "TestHostileDSN", edits: []mutate.Edit{{"access.go",
		"ISOLATION LEVEL REPEATABLE READ, READ WRITE", "ISOLATION LEVEL REPEATABLE READ"}}},
	{name: "a DSN keeps ranges out of the binary log", by: "TestBadParameter", edits: []mutate.Edit{{"dsn.go",
		"{\"sql_log_bin\", \"wsrep_on\"}", "{\"wsrep_on\"}"}}},
	{name: "a transaction of the server's init_connect goes on", by: "TestServerSettings", edits: []mutate.Edit{{"access.go",
		"		\"ROLLBACK\",", "		\"DO 1\","}}},
}
