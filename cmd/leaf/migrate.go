package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/internal/cli"
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
	var check, print bool
	cmd := cli.Local(&cobra.Command{
		Use:   "migrate",
		Short: "Create or check the MySQL tables",
		Long: `Create the tables that leaf keeps in a MySQL or MariaDB database, as leaf serve does,
and check those that exist. Nothing is dropped, altered or rewritten.`,
		Example: `  leaf migrate --mysql-file admin.dsn            user:password@tcp(host:3306)/database
  leaf migrate --mysql-file leaf.dsn --check
  leaf migrate --print > leaf.sql`,
	}, func(s *cli.Session, _ []string) error {
		if print {
			text, err := schema.SQL(db.table)
			if err != nil {
				return cli.Usagef("--mysql-table: %w", err)
			}
			fmt.Fprint(s.Out, text)
			return nil
		}
		m, err := migrate(s, &db, check)
		if err != nil {
			return err
		}
		return s.Print(m, m.print)
	})
	cli.Settings(cmd.Flags(), cli.GroupCommand, func(fs *pflag.FlagSet) {
		db.register(fs, "the database, `DSN` "+dsnForm)
	})
	cmd.Flags().BoolVar(&check, "check", false, "create nothing: fail where a table is missing")
	cmd.Flags().BoolVar(&print, "print", false, "only print the SQL that creates the tables")
	cmd.MarkFlagsMutuallyExclusive("check", "print")
	cmd.MarkFlagsMutuallyExclusive("json", "print")
	return cmd
}

func migrate(s *cli.Session, db *databaseFlags, check bool) (m migration, err error) {
	if db.dsn == "" {
		return m, cli.Usagef("--mysql or --mysql-file is missing: it names the database, %s", dsnForm)
	}
	log, err := cli.NewLogger(s.Cmd.ErrOrStderr(), "warn", "text")
	if err != nil {
		return m, err
	}
	store, err := db.store(schema.Config{Check: check, Log: log})
	if err != nil {
		return m, err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(s.Context(), migrateTimeout)
	defer cancel()
	created, err := store.Migrate(ctx)
	if err != nil {
		return m, err
	}
	m.Created = append([]string{}, created...) // in JSON [], not null
	m.Tags, m.Unserved, err = rowsOf(ctx, store)
	return m, err
}

func (m migration) print(w io.Writer) {
	what := "all tables existed"
	if len(m.Created) > 0 {
		what = "created " + strings.Join(m.Created, ", ")
	}
	fmt.Fprintf(w, "%s; %s\n", what, cli.Counted(m.Tags, "tag"))
	for _, row := range m.Unserved {
		fmt.Fprintln(w, "not served:", row)
	}
}
