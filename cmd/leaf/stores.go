package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"sync"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/schema"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

// dsnForm shows what a DSN is.
const dsnForm = "user:password@tcp(host:3306)/database"

// databaseFlags say which database has the tags, and how to reach it.
type databaseFlags struct {
	dsn, file string // or the file that has the DSN
	table     string
	tls       schema.TLS
}

func (f *databaseFlags) register(fs *pflag.FlagSet, usage string) {
	fs.StringVar(&f.dsn, "mysql", "", usage)
	fs.StringVar(&f.table, "mysql-table", "", "`NAME` of the table of the tags (default "+schema.DefaultTable+")")
	fs.StringVar(&f.tls.CA, "mysql-tlsca", "", "`FILE` of the authority that signed the database's certificate")
	fs.StringVar(&f.tls.Cert, "mysql-tlscert", "", "client certificate `FILE` for the database")
	fs.StringVar(&f.tls.Key, "mysql-tlskey", "", "key `FILE` of that certificate")
	cli.SecretFile(fs, "mysql", &f.file)
}

// store returns the database, not open yet; nil: there is none. cfg has what the flags do not say.
func (f *databaseFlags) store(cfg schema.Config) (*schema.Database, error) {
	if f.dsn == "" {
		if f.table != "" || f.tls != (schema.TLS{}) {
			return nil, cli.Usagef("--mysql-table and --mysql-tls... are about a database: give --mysql-file or " +
				"--mysql too")
		}
		return nil, nil
	}
	cfg.DSN, cfg.Table, cfg.TLS = f.dsn, f.table, f.tls
	cfg.Reread = cli.Reread(f.file)
	s, err := schema.New(cfg)
	if err != nil {
		return nil, cli.Usagef("--mysql: %w", err)
	}
	return s, nil
}

// rowsOf returns how many rows of a database are tags that can be served, and which are not, with
// the reasons.
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

// zookeeperFlags say whether and where the workers are kept in ZooKeeper.
type zookeeperFlags struct{ hosts, name string }

func (f *zookeeperFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.hosts, "zookeeper", "", "keep the workers in ZooKeeper, `HOSTS` such as h1:2181,h2:2181,h3:2181")
	fs.StringVar(&f.name, "zookeeper-name", zookeeper.DefaultName, "its nodes are under /leaf/`NAME`")
}

func (f *zookeeperFlags) check() error {
	if f.hosts == "" {
		if f.name != zookeeper.DefaultName {
			return cli.Usagef("--zookeeper-name without --zookeeper: name its servers too")
		}
		return nil
	}
	if err := (zookeeper.Config{Hosts: f.hosts, Name: f.name}).Validate(); err != nil {
		return cli.Usagef("--zookeeper, --zookeeper-name: %w", err)
	}
	return nil
}

// registry returns the registry in ZooKeeper. Without a node it is for administration. The port of
// an embedded NATS server is what the generator is known by there.
func (f *zookeeperFlags) registry(
	node string, layout snowflake.Layout, own *embedded.Server, log *slog.Logger,
) (*zookeeper.Registry, error) {
	if node == "" {
		log = log.With("for", "administration")
	}
	cfg := zookeeper.Config{Hosts: f.hosts, Name: f.name, Node: node, Layout: layout, Log: log}
	if own != nil {
		if at, err := url.Parse(own.ClientURL()); err == nil {
			cfg.Port = at.Port()
		}
	}
	return zookeeper.New(cfg)
}

// limitReplicas is what JetStream allows.
const limitReplicas = 5

// replicasFlag adds the flag of how many copies a command makes.
func replicasFlag(fs *pflag.FlagSet, replicas *int) {
	cli.Number(fs, replicas, "replicas", 0, 0, limitReplicas,
		"copies of what this command creates in a cluster (default 3 where it has them)")
}

// showRecords shows on a terminal how far a backup or a restore is.
func showRecords(s *cli.Session) kvstore.Progress {
	return func(bucket string, done, total int) { s.Progress("records of "+bucket, int64(done), int64(total)) }
}

// openFolder opens the data folder. Before it checks the DSN: a usage error leaves no folder.
func (s *serving) openFolder(context.Context) error {
	db, err := s.mysql.store(schema.Config{Check: !s.migrate, Log: s.log})
	if err != nil {
		return err
	}
	if db != nil {
		s.owned.Database = db
		s.defers(db.Close)
	}
	dir, err := installation.OpenFolder(s.dataDir, s.node)
	if err != nil {
		return err
	}
	s.owned.Folder = dir
	s.defers(dir.Close)
	if s.belongs && s.config.NewInstallation {
		s.log.Warn("--new-installation has no effect, because the data folder belongs to an installation. Remove "+
			"the flag: with an empty data folder it would begin at 1", "dir", dir.Path)
	}
	if dir.Copied {
		s.log.Warn("the data folder was copied or restored: this generator gets a new name and worker. "+
			"If a NATS server's state was copied with it, and the original runs or has run since, IDs of tags will "+
			"repeat", "dir", dir.Path)
	}
	return nil
}

// openStores says where the tags and the workers are. Whose they are is found out later.
func (s *serving) openStores(ctx context.Context) error {
	if s.embed && !s.belongs {
		if err := s.awaitJetStream(ctx, s.owned.State.JS); err != nil { // the account of --nats-config may have none
			return err
		}
	}
	s.owned.State.Replicas, s.owned.State.Log = s.replicas, s.log
	s.owned.EventsMaxBytes, s.owned.EventsMaxAge, s.owned.Adopt = s.eventsMaxBytes, s.eventsMaxAge, s.adopt
	if s.zookeeper.hosts == "" {
		return nil
	}
	var closing sync.WaitGroup // at the same time, because each may take a few seconds
	s.defers(func() error { closing.Wait(); return nil })
	// Two connections, so that questions of administration do not hold up reports.
	for node, registry := range map[string]*installation.Registry{
		s.owned.Folder.Node: &s.owned.Workers, "": &s.owned.Administration,
	} {
		r, err := s.zookeeper.registry(node, s.config.Snowflake.Layout, s.owned.Server, s.log)
		if err != nil {
			return err
		}
		s.defers(func() error { closing.Go(r.Close); return nil })
		*registry = r
	}
	return nil
}
