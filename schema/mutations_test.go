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
	{name: "a range below what is known to be in use is handed out", edits: []mutate.Edit{{"reserve.go",
		"BETWEEN ? AND ?\", amount, tag, tag, step, from, math.MaxInt64-amount)",
		"<= ?\", amount, tag, tag, step, math.MaxInt64-amount)"}}},
	{name: "a range is reserved by a step that was changed", by: "TestStepChangedBySQL", edits: []mutate.Edit{{"reserve.go",
		"\" AND step = ? AND GREATEST", "\" AND ? > 0 AND GREATEST"}}},
	{name: "a range may pass the largest number", by: "TestEnds", edits: []mutate.Edit{{"reserve.go",
		"step, from, math.MaxInt64-amount)", "step, from, int64(math.MaxInt64))"}}},
	{name: "the statement changed two rows, and its answer counts", by: "TestUnfitLater", edits: []mutate.Edit{{"reserve.go",
		"if affected != 1 || end-amount < 1 {", "if end-amount < 1 {"}}},
	{name: "the range begins where max_id is after the statement", edits: []mutate.Edit{{"reserve.go",
		"	return end - amount, nil", "	return end, nil"}}},
	{name: "max_id of another program below 1 is taken as it is", by: "TestEnds", edits: []mutate.Edit{{"reserve.go",
		"LAST_INSERT_ID(GREATEST(max_id, 1) + ?)", "LAST_INSERT_ID(max_id + ?)"}}},

	// A database that went backwards.
	{name: "moving max_id up moves it down where another generator was faster", by: "TestRaiseAfterAnOldReading",
		edits: []mutate.Edit{{"reserve.go", " AND max_id < ?\", to, tag, tag, from)", "\", to, tag, tag)"}}},
	{name: "a generator that was too late reports that it moved max_id up", by: "TestRaiseAfterAnOldReading", edits: []mutate.Edit{{"reserve.go",
		"if err == nil && affected > 0 {", "if err == nil && affected >= 0 {"}}},
	{name: "max_id is moved up where other programs reserve too", by: "TestRaiseShared", edits: []mutate.Edit{{"reserve.go",
		"	if s.cfg.Shared {", "	if false {"}}},
	{name: "an audit believes a replica that lags behind", by: "TestStored", edits: []mutate.Edit{{"store.go",
		"if err != nil || t.MaxID >= end {", "if true {"}}},

	// A deleted tag goes on above all its IDs.
	{name: "a deletion does not note how far the tag was", edits: []mutate.Edit{{"change.go",
		"MaxID: max(last.MaxID, last.Floor, from)}", "MaxID: max(1, last.Floor-last.Floor, from)}"}}},
	{name: "a deletion forgets what the caller knows to be in use", edits: []mutate.Edit{{"change.go",
		"MaxID: max(last.MaxID, last.Floor, from)}", "MaxID: max(last.MaxID, last.Floor)}"}}},
	{name: "a tag that is created again begins at 1", edits: []mutate.Edit{{"change.go",
		"end := max(tag.MaxID, m.Floor, m.MaxID)", "end := max(tag.MaxID, m.Floor-m.Floor)"}}},
	{name: "the mark counts as it was before the row was locked", by: "TestDeleteBetween", edits: []mutate.Edit{
		{"change.go", "		_, _, err := o.load(ctx, tx, tag.Name, \"UPDATE\")", "		_, m, err := o.load(ctx, tx, tag.Name, \"UPDATE\")"},
		{"change.go", "		_, m, err := o.load(ctx, tx, tag.Name, \"UPDATE\")\n		if err != nil {\n			return err\n		}\n		end :=", "		end :="}}},
	{name: "the mark is read from a stale snapshot", by: "TestDeleteBetween", edits: []mutate.Edit{
		{"change.go", "&sql.TxOptions{Isolation: sql.LevelReadCommitted}", "&sql.TxOptions{Isolation: sql.LevelRepeatableRead}"},
		{"change.go", "		_, _, err := o.load(ctx, tx, tag.Name, \"UPDATE\")", "		_, _, err := o.load(ctx, tx, tag.Name, \"\")"},
		{"change.go", "		_, m, err := o.load(ctx, tx, tag.Name, \"UPDATE\")", "		_, m, err := o.load(ctx, tx, tag.Name, \"\")"}}},
	{name: "marks ignore letters' case", by: "TestMarksAreApart", edits: []mutate.Edit{{"migrate.go",
		"COLLATE utf8mb4_bin NOT NULL,\\n\" +\n		\"  floor", "COLLATE utf8mb4_general_ci NOT NULL,\\n\" +\n		\"  floor"}}},

	// A change is done whole or not at all, and beside reservations.
	{name: "a lost answer of a commit counts as success", by: "TestLostStatements", edits: []mutate.Edit{{"change.go",
		"		case committing && number(err) == 0: // the server has not answered\n", "		case committing && number(err) == 0:\n			return t, nil\n		case false:\n"}}},
	{name: "a lost answer of a commit counts as no change", by: "TestLostStatements", edits: []mutate.Edit{{"change.go",
		"case committing && number(err) == 0:", "case committing && number(err) == 1:"}}},
	{name: "a change does not lock its row", by: "TestChangesBesideReserve", edits: []mutate.Edit{{"change.go",
		"		row, m, err := o.load(ctx, tx, tag, \"UPDATE\")\n		if err != nil {\n			return err\n		}\n		t, err",
		"		row, m, err := o.load(ctx, tx, tag, \"\")\n		if err != nil {\n			return err\n		}\n		t, err"}}},
	{name: "a change that the server undid fails", by: "TestDeadlock", edits: []mutate.Edit{{"change.go",
		"		case !undone(err):", "		case true:"}}},
	{name: "names that differ in letters' case are one tag", by: "TestFoldedNames", edits: []mutate.Edit{{"rows.go",
		"CAST(CONVERT(biz_tag USING utf8mb4) AS BINARY) = CAST(? AS BINARY)", "? <> ''"}}},

	// What numbers promise.
	{name: "the step that was expected is returned for another one", by: "TestAdvanceStep", edits: []mutate.Edit{{"advance.go",
		"		step = row.Step\n", ""}}},
	{name: "a step is asked for at each Advance", by: "TestAdvanceStep", edits: []mutate.Edit{{"advance.go",
		"			s.steps.set(tag, step)\n", ""}}},
	{name: "a guess makes a damaged row count", by: "TestAdvanceDamaged", edits: []mutate.Edit{{"advance.go",
		"step = min(n, allocator.LimitStep)", "step = n"}}},
	{name: "a range of fewer than was asked for", by: "TestAdvanceEnds", edits: []mutate.Edit{{"advance.go",
		"		if left < n {", "		if left < 1 {"}}},
	{name: "a replica answers Peek", by: "TestLocked", edits: []mutate.Edit{{"row.go",
		"Where(named, tag, tag).For(\"UPDATE\"))\n	if err == nil {", "Where(named, tag, tag))\n	if err == nil {"}}},
	{name: "a tag that is removed amid Peek is missed", by: "TestRemoveBetween", edits: []mutate.Edit{
		{"row.go", "	err = scan(ctx, o.rows(o.db, &row).Where(named, tag, tag).For(\"UPDATE\"))\n	if err == nil {\n		err = scan(ctx, o.db.NewSelect().Model(&m).Where(\"?TableAlias.biz_tag = ?\", tag).For(\"UPDATE\"))\n",
			"	err = scan(ctx, o.db.NewSelect().Model(&m).Where(\"?TableAlias.biz_tag = ?\", tag).For(\"UPDATE\"))\n	if err == nil {\n		err = scan(ctx, o.rows(o.db, &row).Where(named, tag, tag).For(\"UPDATE\"))\n"}}},
	{name: "a tag that is removed amid Rows is missed", by: "TestRemoveBetween", edits: []mutate.Edit{{"row.go",
		"		rows, err := o.rows(tx, &row).Rows(ctx)", "		rows, err := o.rows(o.db, &row).Rows(ctx)"}}},
	{name: "a mark moves down", by: "TestMarks", edits: []mutate.Edit{{"put.go", "mark = GREATEST(mark, ?)", "mark = ?"}}},
	{name: "a mark loses its kind", by: "TestMarks", edits: []mutate.Edit{{"put.go", "kind = IF(? = '', kind, ?)", "kind = IF(? = '', ?, kind)"}}},
	{name: "a removal forgets the ranges that were taken", by: "TestMarks", edits: []mutate.Edit{{"put.go", "max(mark, row.MaxID), kind)", "mark, kind)"}}},
	{name: "a removal is done by half", by: "TestRemoveWhole", edits: []mutate.Edit{{"put.go", "note(ctx, tx, tag", "note(ctx, o.db, tag"}}},
	{name: "max_id moves down", by: "TestBroken", edits: []mutate.Edit{{"put.go", "max_id = GREATEST(max_id, ?)", "max_id = LEAST(max_id, ?)"}}},
	{name: "a write that the server undid fails", by: "TestDeadlocked", edits: []mutate.Edit{{"put.go", "		if !undone(err) {", "		if true {"}}},

	// The reading of the table.
	{name: "tags vanish when a reading breaks", by: "TestBrokenReading", edits: []mutate.Edit{{"rows.go",
		"	return rows.Err()\n}\n\n// marks returns", "	return nil\n}\n\n// marks returns"}}},
	{name: "a tag that is deleted amid a look at all is missed", by: "TestEndsDuringADeletion", edits: []mutate.Edit{
		{"watch.go", "	// The marks come last: a tag that is deleted meanwhile has one.\n", "	notes, err := marks(ctx, o.db, nil)\n"},
		{"watch.go", "	notes, err := marks(ctx, o.db, nil)\n	if err != nil {\n		return s.explain(ctx, err)\n	}\n", ""}}},
	{name: "a table that lost its engine is used", by: "TestAltered", edits: []mutate.Edit{{"check.go",
		"} else if !table.Transactions {", "} else if false {"}}},

	// Whose database it is, and where the connection leads.
	{name: "another installation's database is served", by: "TestOwnerChanges", edits: []mutate.Edit{{"installation.go",
		"if err == nil && now != *had {", "if err == nil && now == (owner{}) {"}}},
	{name: "the database of another installation counts as ours", by: "TestClaimOfOthers", edits: []mutate.Edit{{"installation.go",
		"return have.Installation, have.Store, nil", "return installation, have.Store, nil"}}},
	{name: "a database that was claimed meanwhile is claimed again", by: "TestClaimTogether", edits: []mutate.Edit{{"installation.go",
		"o.db.NewInsert().Ignore().Model(&want)", "o.db.NewInsert().On(\"DUPLICATE KEY UPDATE\").Model(&want)"}}},
	{name: "a row that a restore is about to write is written first", by: "TestRestoreBeside", edits: []mutate.Edit{
		{"installation.go", "case <-time.After(s.restoring):", "case <-time.After(0):"}}},
	{name: "an address that leads to another database is used", by: "TestAddressLeadsElsewhere", edits: []mutate.Edit{{"dsn.go",
		"if err == io.EOF || err == nil && answer != *want {", "if err == io.EOF {"}}},
	{name: "a replica is written to", by: "TestServerSettings", edits: []mutate.Edit{{"dsn.go",
		"	return errReadOnly\n", "	return nil\n"}}},

	// Which table has the tags.
	{name: "a table is made beside one in capital letters", by: "TestTableInOtherLetters", edits: []mutate.Edit{{"migrate.go",
		"return strings.EqualFold(name, t.name) })", "return false && strings.EqualFold(name, t.name) })"}}},
	{name: "an installation begins a second table", by: "TestOneTable", edits: []mutate.Edit{{"migrate.go",
		"err == nil && !s.same(have.Alloc, s.cfg.Table):", "false:"}}},

	// How the database is reached.
	{name: "a new password takes a restart", by: "TestPasswordChanges", edits: []mutate.Edit{{"access.go",
		"if a.cfg.Reread != nil {", "if false {"}}},
	{name: "a password that is being written counts", by: "TestPasswordChanges", edits: []mutate.Edit{{"access.go",
		"	if err == nil {\n		err = a.read(dsn)\n	}", "	if err == nil {\n		err = a.read(dsn)\n	}\n	if err != nil {\n		a.last, _ = mysql.NewConnector(new(mysql.Config))\n	}"}}},
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
	{name: "a DSN asks for a read-only session", by: "TestHostileDSN", edits: []mutate.Edit{{"dsn.go",
		"ISOLATION LEVEL REPEATABLE READ, READ WRITE", "ISOLATION LEVEL REPEATABLE READ"}}},
	{name: "a DSN keeps ranges out of the binary log", by: "TestBadParameter", edits: []mutate.Edit{{"dsn.go",
		"{\"sql_log_bin\", \"wsrep_on\"}", "{\"wsrep_on\"}"}}},
	{name: "a transaction of the server's init_connect goes on", by: "TestServerSettings", edits: []mutate.Edit{{"dsn.go",
		"		\"ROLLBACK\",", "		\"DO 1\","}}},
}
