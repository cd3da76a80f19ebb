package main

import (
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/schema"
)

// Bounds of --tag-refresh.
const (
	leastRefresh = 100 * time.Millisecond
	mostRefresh  = 24 * time.Hour
)

// registerMySQL adds the flags that name the database.
func registerMySQL(fs *pflag.FlagSet, dsn *string, usage string) {
	fs.StringVar(dsn, "mysql", "", usage)
	markSecret(fs, "mysql")
	group(fs, groupState, "mysql")
	addSecretFile(fs, groupState, "mysql")
}

// mysqlFlags say whether and how the tags are kept in MySQL.
type mysqlFlags struct {
	dsn     string
	migrate bool
	shared  bool
	refresh time.Duration
}

func (f *mysqlFlags) register(fs *pflag.FlagSet) {
	registerMySQL(fs, &f.dsn, "keep the tags in this MySQL or MariaDB database, `DSN` user:password@tcp(host:3306)/database (default in JetStream)")
	fs.BoolVar(&f.migrate, "mysql-migrate", true, "create the tables that are missing in the database")
	fs.BoolVar(&f.shared, "shared-table", false, "other programs, such as Java Leaf, reserve in leaf_alloc too. "+
		"If the database goes backwards, tags are refused (store_regressed) until an operator moves max_id. Give this flag to all generators")
	fs.DurationVar(&f.refresh, "tag-refresh", schema.DefaultRefresh, "how often to read from the database which tags others added, changed or removed")
	group(fs, groupState, "mysql-migrate", "shared-table", "tag-refresh")
}

func (f *mysqlFlags) check() error {
	if f.shared && f.dsn == "" {
		return usagef("--shared-table is about a table in MySQL: give --mysql too")
	}
	if f.refresh < leastRefresh || f.refresh > mostRefresh {
		return usagef("--tag-refresh is %v, not from %v to %v", f.refresh, leastRefresh, mostRefresh)
	}
	return nil
}

// store returns the store in the database, not open yet; nil: there is none.
func (f *mysqlFlags) store(log *slog.Logger) (*schema.Store, error) {
	if f.dsn == "" {
		return nil, nil
	}
	s, err := schema.New(schema.Config{DSN: f.dsn, Check: !f.migrate, Shared: f.shared, Refresh: f.refresh, Log: log})
	if err != nil {
		return nil, usagef("--mysql: %w", err)
	}
	return s, nil
}
