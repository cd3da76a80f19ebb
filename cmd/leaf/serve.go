package main

import (
	"cmp"
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
	fs.StringVar(&f.listen, "listen", "", "`ADDR` of the embedded NATS server (default "+defaultListen+")")
	fs.StringVar(&f.dataDir, "data-dir", "leaf-data", "`DIR` of all local state")
	fs.StringSliceVar(&f.tags, "tag", nil, "make sure that this tag exists: `NAME[:STEP]` (repeatable)")
	fs.StringVar(&f.node, "node", "", "`NAME` of this generator (default a random one, kept in the data folder)")
	f.conn.Register(fs, cli.GroupNATS)
	f.conn.OwnInboxes(fs)
	cli.Settings(fs, cli.GroupStart, "tag", "data-dir", "server", "listen", "node")
	fs.StringVar(&f.natsConfig, "nats-config", "", "nats-server configuration `FILE` for the embedded server")
	cli.Settings(fs, cli.GroupNATS, "nats-config")
	f.zookeeper.register(fs)
	fs.BoolVar(&f.look, "check", false, "start nothing: check what a start needs, and say what is wrong")
	cli.Settings(fs, cli.GroupCommand, "check")
	f.registerState(fs)
	f.registerLimits(fs)
	f.layout.register(cmd)
	f.worker.register(cmd)
	cli.Settings(fs, cli.GroupSnowflakes, "id-bits", "time-unit", "worker-bits", "sequence-bits", "epoch")
	f.http.register(fs)
	fs.StringVar(&f.logLevel, "log-level", "info", "lowest `LEVEL` that is logged: debug, info, warn or error")
	fs.StringVar(&f.logFormat, "log-format", "text", "`FORMAT` of the log on stderr: text or json")
	cli.Settings(fs, cli.GroupLog, "log-level", "log-format")
	return cmd
}

func (f *serveFlags) registerState(fs *pflag.FlagSet) {
	f.mysql.register(fs, cli.GroupState, "keep the tags in this MySQL or MariaDB, `DSN` "+dsnForm)
	fs.BoolVar(&f.migrate, "mysql-migrate", true, "create the tables that are missing in the database")
	fs.DurationVar(&f.config.Refresh, "tag-refresh", allocator.DefaultRefresh, "how often to compare the database's tags")
	replicasFlag(fs, &f.replicas)
	fs.BoolVar(&f.config.NewInstallation, "new-installation", false,
		"create a new installation although there may be one that JetStream lost: its tags begin at 1. For one start")
	fs.BoolVar(&f.adopt, "adopt", false, "if JetStream lost the record of the data folder's installation, make it "+
		"again: for one start, without a backup")
	fs.Int64Var(&f.eventsMaxBytes, "events-max-bytes", kvstore.DefaultEventsMaxBytes, "size of a new event stream")
	fs.DurationVar(&f.eventsMaxAge, "events-max-age", kvstore.DefaultEventsMaxAge, "how long it keeps an event")
	cli.Settings(fs, cli.GroupState, "mysql-migrate", "tag-refresh", "replicas", "new-installation", "adopt",
		"events-max-bytes", "events-max-age")
}

func (f *serveFlags) registerLimits(fs *pflag.FlagSet) {
	c, flakes := &f.config, &f.config.Snowflake
	fs.Int64Var(&c.MaxBatch, "max-batch", allocator.DefaultMaxBatch, "most IDs in one request")
	fs.DurationVar(&c.MaxWait, "max-wait", allocator.DefaultMaxWait, "how long a request waits at most")
	fs.Int64Var(&c.MaxWaiting, "max-waiting", allocator.DefaultMaxWaiting, "most requests that wait at a time")
	fs.Int64Var(&c.MaxStep, "max-step", allocator.DefaultMaxStep, "most IDs that a generator reserves at a time")
	fs.DurationVar(&c.Outlast, "outlast", allocator.DefaultOutlast, "how long the IDs in memory should last")
	fs.DurationVar(&c.DrainTimeout, "drain-timeout", 10*time.Second, "how long a stop waits for accepted requests")
	cli.Settings(fs, cli.GroupLimits, "max-batch", "max-wait", "max-waiting", "max-step", "outlast", "drain-timeout")
	fs.DurationVar(&flakes.Reserve, "worker-reserve", snowflake.DefaultReserve, "how far ahead the worker is reserved")
	fs.DurationVar(&flakes.Grace, "worker-grace", snowflake.DefaultGrace, "how long it stays reserved after a clean stop")
	fs.DurationVar(&flakes.MaxClockSkew, "max-clock-skew", snowflake.DefaultMaxClockSkew,
		"a clock that jumps or differs by more is compared with those of other generators")
	fs.DurationVar(&flakes.MaxBack, "max-clock-back", snowflake.DefaultMaxBack,
		"if the clock goes back by at most this, requests wait; else they are refused")
	fs.DurationVar(&flakes.MaxClockWait, "max-clock-wait", snowflake.DefaultMaxClockWait,
		"an alert comes if a start waits longer than this for a clock that is behind")
	cli.Settings(fs, cli.GroupSnowflakes, "worker-reserve", "worker-grace", "max-clock-skew", "max-clock-back",
		"max-clock-wait")
}

// check refuses values that no generator can work with.
func (f *serveFlags) check() (err error) {
	const year = 365 * 24 * time.Hour
	flakes := &f.config.Snowflake
	if err := cmp.Or(
		cli.Within("max-batch", f.config.MaxBatch, 1, allocator.LimitMaxBatch),
		cli.Within("max-waiting", f.config.MaxWaiting, 1, allocator.LimitMaxWaiting),
		cli.Within("max-step", f.config.MaxStep, 1, allocator.LimitStep),
		cli.Within("outlast", f.config.Outlast, time.Second, idspace.LimitOutlast),
		checkReplicas(f.replicas),
		cli.Within("events-max-bytes", f.eventsMaxBytes, 1<<20, 1<<50),
		cli.Within("events-max-age", f.eventsMaxAge, time.Hour, 100*year),
		cli.Within("max-wait", f.config.MaxWait, 1, time.Minute),
		cli.Within("tag-refresh", f.config.Refresh, 100*time.Millisecond, 24*time.Hour),
		cli.Within("worker-reserve", flakes.Reserve, snowflake.LeastReserve, year),
		cli.Within("worker-grace", flakes.Grace, time.Second, year),
		cli.Within("max-clock-skew", flakes.MaxClockSkew, 10*time.Millisecond, time.Hour),
		cli.Within("max-clock-back", flakes.MaxBack, time.Millisecond, time.Second),
		cli.Within("max-clock-wait", flakes.MaxClockWait, time.Millisecond, time.Minute),
		cli.AtLeast("drain-timeout", f.config.DrainTimeout, 0),
	); err != nil {
		return err
	}
	if f.dataDir == "" { // a script may have lost a variable: this folder is not meant then
		return cli.Usagef("--data-dir is empty: name a folder")
	}
	if f.listen != "" {
		if err := checkAddress(f.listen); err != nil {
			return cli.Usagef("--listen %q: %w", f.listen, err)
		}
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
	if flakes.Layout, err = f.layout.layout(); err != nil {
		return err
	}
	flakes.FirstWorker, flakes.LastWorker, err = f.worker.workers(flakes.Layout)
	return errors.Join(err, f.zookeeper.check(), f.http.check())
}
