package main

import (
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/schema"
)

// Bounds of --tag-refresh.
const (
	leastRefresh = 100 * time.Millisecond
	mostRefresh  = 24 * time.Hour
)

// databaseFlags say which database, and how to reach it.
type databaseFlags struct {
	dsn    string
	secret *pflag.Flag // the one with the DSN
	table  string
	tls    schema.TLS
}

func (f *databaseFlags) register(fs *pflag.FlagSet, usage string) {
	fs.StringVar(&f.dsn, "mysql", "", usage)
	f.secret = fs.Lookup("mysql")
	markSecret(fs, "mysql")
	addSecretFile(fs, groupState, "mysql")
	fs.StringVar(&f.table, "mysql-table", "", "`NAME` of the table of the tags (default "+schema.DefaultTable+")")
	fs.StringVar(&f.tls.CA, "mysql-tlsca", "", "certificate authority `FILE` that signed the certificate of the database's server")
	fs.StringVar(&f.tls.Cert, "mysql-tlscert", "", "client certificate `FILE` for the database")
	fs.StringVar(&f.tls.Key, "mysql-tlskey", "", "key `FILE` of that certificate")
	group(fs, groupState, "mysql", "mysql-table", "mysql-tlsca", "mysql-tlscert", "mysql-tlskey")
}

// store returns the database, not open yet; nil: there is none. cfg has what the flags do not say.
func (f *databaseFlags) store(cfg schema.Config) (*schema.Database, error) {
	if f.dsn == "" {
		if f.table != "" || f.tls != (schema.TLS{}) {
			return nil, usagef("--mysql-table and --mysql-tls... are about a database: give --mysql-file or --mysql too")
		}
		return nil, nil
	}
	cfg.DSN, cfg.Table, cfg.TLS = f.dsn, f.table, f.tls
	cfg.Reread = rereadSecret(f.secret)
	s, err := schema.New(cfg)
	if err != nil {
		return nil, usagef("--mysql: %w", err)
	}
	return s, nil
}

// mysqlFlags say whether and how the tags are kept in MySQL.
type mysqlFlags struct {
	databaseFlags
	migrate bool
	refresh time.Duration
}

func (f *mysqlFlags) register(fs *pflag.FlagSet) {
	f.databaseFlags.register(fs, "keep the tags in this MySQL or MariaDB database, `DSN` user:password@tcp(host:3306)/database (default in JetStream)")
	fs.BoolVar(&f.migrate, "mysql-migrate", true, "create the tables that are missing in the database")
	fs.DurationVar(&f.refresh, "tag-refresh", allocator.DefaultRefresh, "how often to read from the database which tags others added, changed or removed")
	group(fs, groupState, "mysql-migrate", "tag-refresh")
}

func (f *mysqlFlags) check() error {
	if f.refresh < leastRefresh || f.refresh > mostRefresh {
		return usagef("--tag-refresh is %v, not from %v to %v", f.refresh, leastRefresh, mostRefresh)
	}
	return nil
}

// store returns the database, not open yet; nil: there is none.
func (f *mysqlFlags) store(log *slog.Logger) (*schema.Database, error) {
	return f.databaseFlags.store(schema.Config{Check: !f.migrate, Log: log})
}
