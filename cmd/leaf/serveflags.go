package main

import (
	"cmp"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
)

// defaultListen is the default address of the embedded NATS server.
const defaultListen = "127.0.0.1:4222"

// limitReplicas is what JetStream allows.
const limitReplicas = 5

type serveFlags struct {
	conn      connFlags
	mysql     mysqlFlags
	worker    workerFlags
	zookeeper zookeeperFlags
	http      httpFlags

	listen, natsConfig, dataDir, node string
	logLevel, logFormat               string

	tags           []string
	eventsMaxBytes int64
	eventsMaxAge   time.Duration
	replicas       int
	adopt          bool

	config generator.Config // the fields that a flag sets directly
}

func newServeCmd() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a generator",
		Long: `Run a generator: it answers requests for IDs over NATS until a signal stops it.

Without --server it runs a NATS server of its own, with JetStream, and keeps all
state in the data folder: one command is a whole installation. With --server it
joins a running NATS (2.11 or later) and shares the load with the other generators.
Tags may be in MySQL (--mysql-file), and workers in ZooKeeper (--zookeeper).

Over HTTP (--http) it answers Leaf's API, a dashboard at /, /metrics, /healthz and
/readyz. To open HTTP to other machines, give --http-token-file or TLS. The token of
--http-admin-token-file opens the dashboard and /metrics there.

When it can answer requests, it prints one line to stdout:
  leaf ready nats=URL http=URL node=NAME data=DIR mode=embedded|joined
If the store, the registry or the worker is not there yet, the line ends with
waiting=segments,snowflakes, or with one of the two. These are served later, without a
restart. SIGINT and SIGTERM stop it: accepted requests are answered first. A second
signal ends it at once.`,
		Example: `  leaf serve --tag order
  leaf serve --tag order --tag coupon:100000 --data-dir /var/lib/leaf
  leaf serve --listen 0.0.0.0:4222 --user leaf --password-file nats.password
  leaf serve -s nats://10.0.0.5:4222 --data-dir leaf-data-2 --http ''
  leaf serve --http 0.0.0.0:8080 --http-token-file http.token --http-admin-token-file admin.token
  leaf serve --mysql-file leaf.dsn --zookeeper h1:2181,h2:2181,h3:2181
  LEAF_TAG=order,coupon leaf serve --config leaf.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs, flakes := cmd.Flags(), &f.config.Snowflake
	fs.StringVar(&f.listen, "listen", "", "`ADDR` of the embedded NATS server; port 0 is any free one (default "+defaultListen+")")
	fs.StringVar(&f.natsConfig, "nats-config", "", "nats-server configuration `FILE` for the embedded server")
	fs.StringVar(&f.dataDir, "data-dir", "leaf-data", "`DIR` of all local state")
	fs.StringSliceVar(&f.tags, "tag", nil, "make sure that this tag exists: `NAME[:STEP]` (repeatable)")
	fs.StringVar(&f.node, "node", "", "`NAME` of this generator, for example its host: up to 64 of [A-Za-z0-9_.-] (default a random one, kept in the data folder)")
	fs.Int64Var(&f.config.MaxBatch, "max-batch", allocator.DefaultMaxBatch, "most IDs in one request")
	fs.DurationVar(&f.config.MaxWait, "max-wait", allocator.DefaultMaxWait, "how long a request waits at most: for a segment, or for the clock")
	fs.Int64Var(&f.config.MaxWaiting, "max-waiting", allocator.DefaultMaxWaiting, "most requests that wait at a time")
	fs.Int64Var(&f.config.MaxStep, "max-step", allocator.DefaultMaxStep, "largest number of IDs that a generator reserves at a time")
	fs.DurationVar(&f.config.Outlast, "outlast", allocator.DefaultOutlast, "how long the IDs in memory should last at the present rate, if the store is unavailable; the step grows until they do")
	fs.IntVar(&f.replicas, "replicas", 0, "copies of the state that this generator creates in a NATS cluster (default 3 where it has them, else 1)")
	fs.BoolVar(&f.config.NewInstallation, "new-installation", false, "create a new installation although there may be one that JetStream lost: its tags begin at 1. For one start")
	fs.BoolVar(&f.adopt, "adopt", false, "if JetStream lost the record of the data folder's installation, make it again: for one start, without a backup")
	fs.Int64Var(&f.eventsMaxBytes, "events-max-bytes", kvstore.DefaultEventsMaxBytes, "size of the event stream if this generator creates it; one tag's refills fill about an eighth of it")
	fs.DurationVar(&f.eventsMaxAge, "events-max-age", kvstore.DefaultEventsMaxAge, "how long the event stream keeps an event, if this generator creates the stream")
	fs.DurationVar(&flakes.Reserve, "worker-reserve", snowflake.DefaultReserve, "most time that is reserved for the worker: snowflakes last this long while the registry is unavailable")
	fs.DurationVar(&flakes.Grace, "worker-grace", snowflake.DefaultGrace, "how long the worker stays reserved after a clean stop")
	fs.DurationVar(&flakes.MaxClockSkew, "max-clock-skew", snowflake.DefaultMaxClockSkew, "if the clock goes forward by more than this, the generator asks the others for their time. A start takes no worker while its clock differs by more from most of theirs")
	fs.DurationVar(&flakes.MaxBack, "max-clock-back", snowflake.DefaultMaxBack, "if the clock goes back by at most this, requests wait; else they are refused")
	fs.DurationVar(&flakes.MaxClockWait, "max-clock-wait", snowflake.DefaultMaxClockWait, "if the clock is behind the last run of this generator, a start waits without a worker; if by more than this, with an alert")
	fs.DurationVar(&f.config.DrainTimeout, "drain-timeout", 10*time.Second, "how long the generator waits for accepted requests when it stops")
	fs.StringVar(&f.logLevel, "log-level", "info", "lowest `LEVEL` that is logged: debug, info, warn or error")
	fs.StringVar(&f.logFormat, "log-format", "text", "`FORMAT` of the log on stderr: text or json")
	f.http.register(fs)
	f.worker.register(cmd)
	f.zookeeper.register(fs)
	f.mysql.register(fs)
	f.conn.register(fs, groupNATS)
	f.conn.ownInboxes(fs)
	group(fs, groupStart, "tag", "data-dir", "server", "listen", "node")
	group(fs, groupNATS, "nats-config")
	group(fs, groupState, "replicas", "new-installation", "adopt", "events-max-bytes", "events-max-age")
	group(fs, groupSnowflakes, "worker-reserve", "worker-grace", "max-clock-skew", "max-clock-back", "max-clock-wait")
	group(fs, groupLimits, "max-batch", "max-wait", "max-waiting", "max-step", "outlast", "drain-timeout")
	group(fs, groupLog, "log-level", "log-format")
	completeValues(cmd, "log-level", "debug", "info", "warn", "error")
	completeValues(cmd, "log-format", "text", "json")
	return cmd
}

// check refuses values that no generator can work with.
func (f *serveFlags) check() error {
	const year = 365 * 24 * time.Hour
	flakes := f.config.Snowflake
	if err := cmp.Or(
		within("max-batch", f.config.MaxBatch, 1, allocator.LimitMaxBatch),
		within("max-waiting", f.config.MaxWaiting, 1, allocator.LimitMaxWaiting),
		within("max-step", f.config.MaxStep, 1, allocator.LimitStep),
		within("outlast", f.config.Outlast, time.Second, allocator.LimitOutlast),
		within("replicas", f.replicas, 0, limitReplicas),
		within("events-max-bytes", f.eventsMaxBytes, 1<<20, 1<<50),
		within("events-max-age", f.eventsMaxAge, time.Hour, 100*year),
		within("max-wait", f.config.MaxWait, 1, time.Minute),
		within("worker-reserve", flakes.Reserve, snowflake.LeastReserve, year),
		within("worker-grace", flakes.Grace, time.Second, year),
		within("max-clock-skew", flakes.MaxClockSkew, 10*time.Millisecond, time.Hour),
		within("max-clock-back", flakes.MaxBack, time.Millisecond, time.Second),
		within("max-clock-wait", flakes.MaxClockWait, time.Millisecond, time.Minute),
	); err != nil {
		return err
	}
	if f.config.DrainTimeout < 0 {
		return usagef("--drain-timeout is below zero")
	}
	if f.listen != "" {
		if err := checkAddress(f.listen); err != nil {
			return usagef("--listen %q: %w", f.listen, err)
		}
	}
	if f.node != "" && !installation.IsNode(f.node) {
		return usagef("--node %q: a node's name is 1 to %d characters of [A-Za-z0-9_.-]; a dot must be between two of the others", f.node, installation.MaxNode)
	}
	return errors.Join(f.worker.check(), f.zookeeper.check(), f.http.check(), f.mysql.check())
}

// parseTags reads the values of --tag.
func parseTags(list []string, maxStep int64) ([]allocator.Tag, error) {
	var tags []allocator.Tag
	for _, text := range list {
		t, err := allocator.ParseTag(text, maxStep)
		if err != nil {
			return nil, usagef("--tag %w", err)
		}
		tags = append(tags, t)
	}
	return tags, nil
}
