package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/schema"
)

// migrateTimeout bounds leaf migrate.
const migrateTimeout = time.Minute

// migration is what leaf migrate reports as JSON.
type migration struct {
	Created  []string `json:"created"`  // tables
	Tags     int      `json:"tags"`     // that can be served
	Unserved []string `json:"unserved"` // rows of leaf_alloc that cannot, and why
}

func newMigrateCmd() *cobra.Command {
	var db databaseFlags
	var check, print, asJSON bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create or check the MySQL tables",
		Long: `Create the tables that leaf keeps in a MySQL or MariaDB database, and check those
that exist. An existing table, also Leaf's own leaf_alloc, is used as it is:
nothing is dropped, altered or rewritten. If your table has another name, give it
with --mysql-table.

leaf serve does the same when it starts, unless --mysql-migrate=false: then its
account needs SELECT, INSERT, UPDATE and DELETE, but not CREATE.`,
		Example: `  leaf migrate --mysql-file admin.dsn            user:password@tcp(host:3306)/database
  leaf migrate --mysql-file leaf.dsn --check
  leaf migrate --print > leaf.sql`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if print {
				_, err := fmt.Fprint(cmd.OutOrStdout(), schema.SQL(db.table))
				return err
			}
			if db.dsn == "" {
				return usagef("--mysql or --mysql-file is missing: it names the database, user:password@tcp(host:3306)/database")
			}
			m, err := migrate(cmd, &db, check)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), m)
			}
			return m.show(cmd)
		},
	}
	db.register(cmd.Flags(), "the database, `DSN` user:password@tcp(host:3306)/database")
	cmd.Flags().BoolVar(&check, "check", false, "create nothing: fail where a table is missing")
	cmd.Flags().BoolVar(&print, "print", false, "only print the SQL that creates the tables")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	group(cmd.Flags(), groupOutput, "json", "mysql", "mysql-file", "mysql-table", "mysql-tlsca", "mysql-tlscert", "mysql-tlskey")
	exclusive(cmd, "check", "print")
	return cmd
}

func migrate(cmd *cobra.Command, db *databaseFlags, check bool) (m migration, err error) {
	log, err := newLogger(cmd.ErrOrStderr(), "warn", "text")
	if err != nil {
		return m, err
	}
	s, err := db.store(schema.Config{Check: check, Log: log})
	if err != nil {
		return m, err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), migrateTimeout)
	defer cancel()
	created, err := s.Migrate(ctx)
	if err != nil {
		return m, err
	}
	m.Created = append([]string{}, created...) // in JSON [], not null
	m.Tags, m.Unserved, err = rowsOf(ctx, s)
	return m, err
}

// rowsOf returns how many rows of a database are tags that can be served, and which are not, with the reasons.
func rowsOf(ctx context.Context, s *schema.Database) (tags int, unfit []string, err error) {
	if err := s.Open(ctx); err != nil {
		return 0, nil, err
	}
	unfit = []string{}
	err = s.Rows(ctx, func(r allocator.Row) {
		switch {
		case r.Problem != nil:
			unfit = append(unfit, fmt.Sprintf("%q: %v", r.Name, r.Problem))
		case r.MaxID > 0:
			tags++
		}
	})
	return tags, unfit, err
}

func (m migration) show(cmd *cobra.Command) error {
	what := "all tables existed"
	if len(m.Created) > 0 {
		what = "created " + strings.Join(m.Created, ", ")
	}
	text := fmt.Sprintf("%s; %d tags\n", what, m.Tags)
	for _, row := range m.Unserved {
		text += "not served: " + row + "\n"
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}
