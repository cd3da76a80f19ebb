package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// databaseFaults are about MariaDB. Whatever it forgets, no ID of a tag comes twice: its record is in JetStream.
var databaseFaults = []*fault{
	{
		name: "db-kill", about: "kill -9 of the database, which comes back after up to 15 s", weight: 2,
		store: "mysql", harms: []string{harmsDatabase},
		strike: func(s *strike) {
			kit.Must(s, s.db.Primary().Kill())
			s.last(0, 15*time.Second)
			kit.Must(s, s.db.Primary().Run())
		},
	},
	{
		name: "db-hang", about: "SIGSTOP of the database for up to 15 s", weight: 2,
		store: "mysql", harms: []string{harmsDatabase},
		strike: func(s *strike) {
			kit.Must(s, s.db.Primary().Freeze())
			s.last(time.Second, 15*time.Second)
			kit.Must(s, s.db.Primary().Thaw())
		},
	},
	{
		name: "db-readonly", about: "the database is read-only for up to 15 s", weight: 1,
		store: "mysql", harms: []string{harmsDatabase},
		strike: func(s *strike) {
			s.sql("SET GLOBAL read_only = 1")
			s.last(time.Second, 15*time.Second)
			s.sql("SET GLOBAL read_only = 0")
		},
	},
	{
		name: "db-slow", about: "each answer of the database comes up to 1.5 s late", weight: 1,
		store: "mysql", harms: []string{harmsDatabase},
		strike: func(s *strike) {
			s.db.Link.Delay(s.between(20*time.Millisecond, 1500*time.Millisecond))
			s.last(2*time.Second, 15*time.Second)
			s.db.Link.Delay(0)
		},
	},
	{
		name: "db-lost-answers", about: "connections to the database break before a request or its answer arrives", weight: 2,
		store: "mysql", harms: []string{harmsDatabase}, strike: loseDatabaseAnswers,
	},
	{
		name: "db-link", about: "the database is cut off from one generator, or silent, in one direction or both", weight: 1,
		store:  "mysql",
		strike: func(s *strike) { s.harmLink(s.machine().db) },
	},
	{
		name: "db-locked", about: "another client locks a row, or the table, for up to 15 s", weight: 1,
		store: "mysql", harms: []string{harmsDatabase}, strike: lockDatabase,
	},
	{
		name: "db-failover", about: "the database dies, and a replica that may be behind takes over", weight: 3,
		store: "mysql", harms: []string{harmsDatabase, harmsRows},
		strike: func(s *strike) {
			if s.IntN(4) > 0 {
				s.db.Lag(true)
				s.last(time.Second, 15*time.Second)
			}
			kit.Must(s, s.db.Primary().Kill())
			s.last(0, 3*time.Second)
			s.db.FailOver()
			s.refilled()
			s.db.Replicate()
		},
	},
	{
		name: "db-split", about: "two databases accept writes, and generators change between them", weight: 3,
		store: "mysql", harms: []string{harmsDatabase, harmsRows}, strike: splitDatabase,
	},
	{
		name: "db-back", about: "the database is restored from a copy that is seconds old", weight: 3,
		store: "mysql", harms: []string{harmsDatabase, harmsRows},
		strike: func(s *strike) {
			s.copyTables()
			s.last(time.Second, 20*time.Second)
			s.setTablesBack()
			s.refilled()
		},
	},
	{
		name: "db-ids-back", about: "SQL moves each max_id back by up to a million, and all that leaf_mark knows", weight: 2,
		store: "mysql", harms: []string{harmsDatabase},
		strike: func(s *strike) {
			for range 1 + s.IntN(4) {
				back := s.IntN(1_000_000)
				s.sql(fmt.Sprintf("UPDATE leaf_alloc SET max_id = GREATEST(1, max_id - %d)", back), fmt.Sprintf(
					"UPDATE leaf_mark SET mark = GREATEST(1, mark - %d)", back))
				s.last(0, 4*time.Second)
			}
			s.refilled()
		},
	},
	{
		name: "db-dump", about: "tables are dropped, and made again by a dump that is seconds old", weight: 2,
		store: "mysql", harms: []string{harmsDatabase, harmsRows}, strike: restoreDump,
	},
	{
		name: "db-row-gone", about: "SQL deletes the row of a tag, and inserts it again at 1", weight: 2,
		store: "mysql", harms: []string{harmsDatabase, harmsRows},
		strike: func(s *strike) {
			tag := []string{order, stock}[s.IntN(2)]
			for range 1 + s.IntN(3) {
				end := s.excuseUnknown(tag)
				s.sql("DELETE FROM leaf_alloc WHERE biz_tag = '" + tag + "'")
				s.last(0, 15*time.Second) // after ten the tag is deleted
				// A generator that starts makes a tag that is missing.
				s.sql("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('" + tag +
					"', 1, 20) ON DUPLICATE KEY UPDATE max_id = 1")
				end()
				s.last(0, 3*time.Second)
			}
			s.refilled()
		},
	},
}

// leafTables are all that the product keeps in the database.
var leafTables = []string{"leaf_alloc", "leaf_mark", "leaf_installation"}

// sql runs statements on the primary, past all links.
func (s *strike) sql(statements ...string) { kit.SQL(s, s.db.Primary().DSN(database), statements...) }

// refilled waits until generators have reserved IDs in the present rows of the tags that are always used. It uses up
// what is in memory.
func (s *strike) refilled() {
	db, err := sql.Open("mysql", s.db.Primary().DSN(database))
	kit.Must(s, err)
	defer db.Close()
	for _, tag := range []string{order, stock} {
		var before, now int64
		read := func(maxID *int64) bool { // false: the row or the table is not back yet
			ctx, cancel := context.WithTimeout(s.ctx, time.Second)
			defer cancel()
			return db.QueryRowContext(ctx, "SELECT max_id FROM leaf_alloc WHERE biz_tag = ?", tag).Scan(maxID) == nil
		}
		s.must("IDs of "+tag+" are reserved in the database", func() bool {
			if before == 0 {
				read(&before)
				return false
			}
			s.takeMany(tag)
			return read(&now) && now != before
		})
	}
}

// takeMany takes more IDs than a generator has in memory: that is twice the --max-step of world.go.
func (s *strike) takeMany(tag string) {
	ctx, cancel := context.WithTimeout(s.ctx, deadline)
	defer cancel()
	call := callers.Call{Kind: "Take", Tag: tag, Sent: time.Now()}
	call.Ranges, call.Err = s.client.Take(ctx, tag, 20_000)
	call.Ended = time.Now()
	s.crowd.record(call)
}

// session runs statements on one connection to the primary, past all links.
func (s *strike) session(f func(run func(statement string))) {
	db, err := sql.Open("mysql", s.db.Primary().DSN(database))
	kit.Must(s, err)
	defer db.Close()
	ctx, cancel := context.WithTimeout(s.ctx, kit.Patience)
	defer cancel()
	conn, err := db.Conn(ctx)
	kit.Must(s, err)
	defer conn.Close()
	f(func(statement string) {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			s.Fatalf("%s: %v", statement, err)
		}
	})
}

// copyTables keeps a copy of all tables beside them.
func (s *strike) copyTables() {
	for _, table := range leafTables {
		s.sql("DROP TABLE IF EXISTS saved_"+table, "CREATE TABLE saved_"+table+" LIKE "+table,
			"INSERT INTO saved_"+table+" SELECT * FROM "+table)
	}
}

// setTablesBack gives all tables the rows of their copies.
func (s *strike) setTablesBack() {
	s.session(func(run func(string)) {
		run("LOCK TABLES " + strings.Join(leafTables, " WRITE, ") + " WRITE, saved_" +
			strings.Join(leafTables, " READ, saved_") + " READ")
		for _, table := range leafTables {
			run("DELETE FROM " + table)
			run("INSERT INTO " + table + " SELECT * FROM saved_" + table)
		}
		run("UNLOCK TABLES")
	})
	s.note("the database is set back")
}

// restoreDump drops one table or all, and restores them as the script of a dump does.
func restoreDump(s *strike) {
	tables := leafTables
	if s.IntN(2) == 0 {
		tables = leafTables[:1]
	}
	s.copyTables()
	s.last(0, 10*time.Second)
	end := s.excuseUnknown(order, stock)
	for _, table := range tables {
		s.sql("DROP TABLE " + table)
	}
	s.last(0, 8*time.Second)
	for _, table := range tables {
		s.sql("DROP TABLE IF EXISTS "+table, "CREATE TABLE "+table+" LIKE saved_"+table,
			"REPLACE INTO "+table+" SELECT * FROM saved_"+table) // a generator may have written a row already
	}
	end()
	s.refilled()
}

func lockDatabase(s *strike) {
	s.session(func(run func(string)) {
		end := "ROLLBACK"
		switch tag := []string{order, stock}[s.IntN(2)]; s.IntN(3) {
		case 0:
			run("LOCK TABLES leaf_alloc READ") // as a dump does
			end = "UNLOCK TABLES"
		default:
			run("BEGIN")
			run("SELECT * FROM leaf_alloc WHERE biz_tag = '" + tag + "' FOR UPDATE")
		}
		s.last(time.Second, 15*time.Second)
		run(end)
	})
}

func loseDatabaseAnswers(s *strike) {
	var mu sync.Mutex // of the random numbers: connections run side by side
	s.db.Link.OnRequest(func([]byte) kit.Action {
		mu.Lock()
		defer mu.Unlock()
		switch s.IntN(20) {
		case 0:
			return kit.CutBefore
		case 1, 2:
			return kit.CutAfter
		}
		return kit.Forward
	})
	s.pause(10 * time.Second)
	s.db.Link.OnRequest(nil)
}

// splitDatabase leads generators to either of two databases that accept writes. Then one of them loses all that it has.
func splitDatabase(s *strike) {
	keep := s.IntN(2)
	s.db.Split()
	for end := time.Now().Add(s.between(5*time.Second, 20*time.Second)); time.Now().Before(end); {
		to := []*kit.MariaDB{s.db.Primary(), s.db.Replica()}[s.IntN(2)]
		s.machines[s.IntN(len(s.machines))].db.Lead(to.Addr())
		s.last(0, time.Second)
	}
	if keep == 1 {
		s.db.FailOver()
	}
	for _, m := range s.machines {
		m.db.Lead(s.db.Link.Addr())
	}
	s.refilled()
	s.db.Replicate()
}

// harmLink cuts a link, or makes it silent, for up to 15 s.
func (s *strike) harmLink(l *kit.Link) {
	do := []func(*kit.Link, bool){
		(*kit.Link).Refuse, (*kit.Link).Hang, (*kit.Link).HangRequests, (*kit.Link).HangAnswers,
	}[s.IntN(4)]
	s.harm(do, time.Second, 15*time.Second, l)
}
