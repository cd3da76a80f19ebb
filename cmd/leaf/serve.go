package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/snowflake"
)

const year = 365 * 24 * time.Hour

type serveFlags struct {
	conn      cli.Conn
	mysql     databaseFlags
	layout    layoutFlags
	worker    workerFlags
	zookeeper zookeeperFlags
	http      httpFlags

	listen, natsConfig, dataDir, node string
	logLevel, logFormat               string

	tags           []string
	migrate        bool // create the tables that are missing
	eventsMaxBytes int64
	eventsMaxAge   time.Duration
	replicas       int
	adopt          bool
	look           bool // only check what a start needs

	config generator.Config // the fields that a flag sets directly; check sets those that depend on several
}

func newServeCmd() *cobra.Command { return new(serveFlags).command() }

func (f *serveFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a generator",
		Long: `Run a generator: it answers requests for IDs over NATS until a signal stops it.

Without --server it runs a NATS server of its own, and keeps all state in the data
folder: one command is a whole installation. With --server it joins a running NATS
(2.11 or later). When it can answer requests, it prints one line to stdout:
  leaf ready nats=URL http=URL node=NAME data=DIR mode=embedded|joined`,
		Example: `  leaf serve --tag order
  leaf serve --tag order --tag coupon:100000 --data-dir /var/lib/leaf
  leaf serve --listen 0.0.0.0:4222 --user leaf --password-file nats.password
  leaf serve -s nats://10.0.0.5:4222 --data-dir leaf-data-2 --http ''
  leaf serve --mysql-file leaf.dsn --zookeeper h1:2181,h2:2181,h3:2181`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	f.conn.Register(fs, cli.GroupStart, cli.GroupNATS)
	f.conn.OwnInboxes(fs)
	cli.Settings(fs, cli.GroupStart, func(fs *pflag.FlagSet) {
		fs.StringVar(&f.listen, "listen", "", "`ADDR` of the embedded NATS server (default "+defaultListen+")")
		fs.StringVar(&f.dataDir, "data-dir", "leaf-data", "`DIR` of all local state")
		fs.StringSliceVar(&f.tags, "tag", nil, "make sure that this tag exists: `NAME[:STEP]` (repeatable)")
		fs.StringVar(&f.node, "node", "", "`NAME` of this generator (default a random one, kept in the data folder)")
	})
	cli.Settings(fs, cli.GroupNATS, func(fs *pflag.FlagSet) {
		fs.StringVar(&f.natsConfig, "nats-config", "", "nats-server configuration `FILE` for the embedded server")
	})
	cli.Settings(fs, cli.GroupState, f.registerState)
	cli.Settings(fs, cli.GroupLimits, f.registerLimits)
	cli.Settings(fs, cli.GroupSnowflakes, f.registerSnowflakes)
	cli.Settings(fs, cli.GroupHTTP, f.http.register)
	cli.Settings(fs, cli.GroupLog, func(fs *pflag.FlagSet) {
		fs.StringVar(&f.logLevel, "log-level", "info", "lowest `LEVEL` that is logged: debug, info, warn or error")
		fs.StringVar(&f.logFormat, "log-format", "text", "`FORMAT` of the log on stderr: text or json")
	})
	cli.Settings(fs, cli.GroupCommand, func(fs *pflag.FlagSet) {
		fs.BoolVar(&f.look, "check", false, "start nothing: check what a start needs, and say what is wrong")
	})
	return cmd
}

func (f *serveFlags) registerState(fs *pflag.FlagSet) {
	f.mysql.register(fs, "keep the tags in this MySQL or MariaDB, `DSN` "+dsnForm)
	f.zookeeper.register(fs)
	replicasFlag(fs, &f.replicas)
	fs.BoolVar(&f.migrate, "mysql-migrate", true, "create the tables that are missing in the database")
	cli.Number(fs, &f.config.Refresh, "tag-refresh", allocator.DefaultRefresh, 100*time.Millisecond, 24*time.Hour,
		"how often to compare the database's tags")
	fs.BoolVar(&f.config.NewInstallation, "new-installation", false,
		"create a new installation although there may be one that JetStream lost: its tags begin at 1. For one start")
	fs.BoolVar(&f.adopt, "adopt", false, "if JetStream lost the record of the data folder's installation, make it "+
		"again: for one start, without a backup")
	cli.Number(fs, &f.eventsMaxBytes, "events-max-bytes", kvstore.DefaultEventsMaxBytes, 1<<20, 1<<50,
		"size of a new event stream")
	cli.Number(fs, &f.eventsMaxAge, "events-max-age", kvstore.DefaultEventsMaxAge, time.Hour, 100*year,
		"how long it keeps an event")
}

func (f *serveFlags) registerLimits(fs *pflag.FlagSet) {
	c := &f.config
	cli.Number(fs, &c.MaxBatch, "max-batch", allocator.DefaultMaxBatch, 1, allocator.LimitMaxBatch,
		"most IDs in one request")
	cli.Number(fs, &c.MaxWait, "max-wait", allocator.DefaultMaxWait, 1, time.Minute, "how long a request waits at most")
	cli.Number(fs, &c.MaxWaiting, "max-waiting", allocator.DefaultMaxWaiting, 1, allocator.LimitMaxWaiting,
		"most requests that wait at a time")
	cli.Number(fs, &c.MaxStep, "max-step", allocator.DefaultMaxStep, 1, allocator.LimitStep,
		"most IDs that a generator reserves at a time")
	cli.Number(fs, &c.Outlast, "outlast", allocator.DefaultOutlast, time.Second, idspace.LimitOutlast,
		"how long the IDs in memory should last")
	cli.Number(fs, &c.DrainTimeout, "drain-timeout", 10*time.Second, 0, 24*time.Hour,
		"how long a stop waits for accepted requests")
}

func (f *serveFlags) registerSnowflakes(fs *pflag.FlagSet) {
	f.layout.register(fs)
	f.worker.register(fs)
	c := &f.config.Snowflake
	cli.Number(fs, &c.Reserve, "worker-reserve", snowflake.DefaultReserve, snowflake.LeastReserve, year,
		"how far ahead the worker is reserved")
	cli.Number(fs, &c.Grace, "worker-grace", snowflake.DefaultGrace, time.Second, year,
		"how long it stays reserved after a clean stop")
	cli.Number(fs, &c.MaxClockSkew, "max-clock-skew", snowflake.DefaultMaxClockSkew, 10*time.Millisecond, time.Hour,
		"a clock that jumps or differs by more is compared with those of other generators")
	cli.Number(fs, &c.MaxBack, "max-clock-back", snowflake.DefaultMaxBack, time.Millisecond, time.Second,
		"if the clock goes back by at most this, requests wait; else they are refused")
	cli.Number(fs, &c.MaxClockWait, "max-clock-wait", snowflake.DefaultMaxClockWait, time.Millisecond, time.Minute,
		"an alert comes if a start waits longer than this for a clock that is behind")
}

// check refuses values that no generator can work with.
func (f *serveFlags) check() (err error) {
	if f.dataDir == "" { // a script may have lost a variable: this folder is not meant then
		return cli.Usagef("--data-dir is empty: name a folder")
	}
	if f.node != "" && !installation.IsNode(f.node) {
		return cli.Usagef("--node %q: a node's name is 1 to %d characters of [A-Za-z0-9_.-]; a dot must be between "+
			"two of the others", f.node, installation.MaxNode)
	}
	for _, text := range f.tags {
		t, err := allocator.ParseTag(text, f.config.MaxStep)
		if err != nil {
			return cli.Usagef("--tag %w", err)
		}
		f.config.Tags = append(f.config.Tags, t)
	}
	flakes := &f.config.Snowflake
	if flakes.Layout, err = f.layout.layout(); err != nil {
		return err
	}
	flakes.FirstWorker, flakes.LastWorker, err = f.worker.workers(flakes.Layout)
	return errors.Join(err, f.zookeeper.check(), f.http.check())
}
