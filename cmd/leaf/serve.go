package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/gateway"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
)

// Where the generator's NATS server is.
const (
	modeEmbedded = "embedded"
	modeJoined   = "joined"
)

// defaultListen is where the embedded NATS server is unless an address is given.
const defaultListen = "127.0.0.1:4222"

// Kinds of what keeps the workers.
const (
	registryKV        = "kv"
	registryZooKeeper = "zookeeper"
)

// Bounds of flags that have no package of their own to set them.
const (
	limitReplicas = 5
)

type serveFlags struct {
	conn      connFlags
	mysql     mysqlFlags
	worker    workerFlags
	zookeeper zookeeperFlags
	http      httpFlags

	listen, natsConfig, dataDir, node string
	logLevel, logFormat               string

	tags                                  []string
	maxBatch, maxWaiting, maxStep, evtMax int64
	maxWait, drainTimeout                 time.Duration
	replicas                              int

	reserve, grace                           time.Duration
	maxClockSkew, maxClockBack, maxClockWait time.Duration
}

func newServeCmd() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a generator",
		Long: `Run a generator: it answers requests for IDs over NATS until it is told to stop.

Without --server it runs a NATS server of its own, with JetStream, and keeps all
state in the data folder: one command is a whole installation. With --server it
joins the NATS that is there and shares the load with the other generators.
Segments may be kept in MySQL (--mysql), workers in ZooKeeper (--zookeeper).

Over HTTP (--http) it answers Leaf's API, and operators: a dashboard at /, /metrics,
/healthz and /readyz. Beyond this machine that takes --http-token, or TLS.

When it answers requests it prints one line to stdout:
  leaf ready nats=URL http=URL node=NAME data=DIR mode=embedded|joined
SIGINT and SIGTERM drain: accepted requests are answered. A second one exits.`,
		Example: `  leaf serve --tag order
  leaf serve --tag order --tag coupon:100000 --data-dir /var/lib/leaf
  leaf serve --listen 0.0.0.0:4222 --user leaf --password secret
  leaf serve -s nats://10.0.0.5:4222 --data-dir leaf-data-2 --http ''
  leaf serve --http 0.0.0.0:8080 --http-token "$TOKEN"
  leaf serve --mysql 'leaf:secret@tcp(db:3306)/leaf' --zookeeper h1:2181,h2:2181,h3:2181
  LEAF_TAG=order,coupon leaf serve --config leaf.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.listen, "listen", "", "`ADDR` of the embedded NATS server; port 0 is any free one (default "+defaultListen+")")
	fs.StringVar(&f.natsConfig, "nats-config", "", "nats-server configuration `FILE` for the embedded server")
	fs.StringVar(&f.dataDir, "data-dir", "leaf-data", "`DIR` of all local state")
	fs.StringSliceVar(&f.tags, "tag", nil, "make sure that this tag exists: `NAME[:STEP]` (repeatable)")
	fs.StringVar(&f.node, "node", "", "`NAME` of this generator (default a random one, kept in the data folder)")
	fs.Int64Var(&f.maxBatch, "max-batch", allocator.DefaultMaxBatch, "most IDs in one request")
	fs.DurationVar(&f.maxWait, "max-wait", allocator.DefaultMaxWait, "longest wait of a request, for a segment or for time")
	fs.Int64Var(&f.maxWaiting, "max-waiting", allocator.DefaultMaxWaiting, "most requests that wait at a time")
	fs.Int64Var(&f.maxStep, "max-step", allocator.DefaultMaxStep, "largest step, adapted or given")
	fs.IntVar(&f.replicas, "replicas", 0, "copies of the state that this generator creates in a NATS cluster (default 3 where it has them, else 1)")
	fs.Int64Var(&f.evtMax, "events-max-bytes", kvstore.DefaultEventsMaxBytes, "size of the event stream if this generator creates it")
	fs.DurationVar(&f.reserve, "worker-reserve", snowflake.DefaultReserve, "most time that is reserved ahead for the worker: how long the registry may be away")
	fs.DurationVar(&f.grace, "worker-grace", snowflake.DefaultGrace, "how long the worker stays reserved after a clean stop")
	fs.DurationVar(&f.maxClockSkew, "max-clock-skew", snowflake.DefaultMaxClockSkew, "longest step forward of the clock that is believed without asking other generators, and how far from theirs a new node's may be")
	fs.DurationVar(&f.maxClockBack, "max-clock-back", snowflake.DefaultMaxBack, "longest step back of the clock that requests wait for")
	fs.DurationVar(&f.maxClockWait, "max-clock-wait", snowflake.DefaultMaxClockWait, "how far the clock may be behind this generator's last run for a start to wait for it; beyond, it is refused")
	fs.DurationVar(&f.drainTimeout, "drain-timeout", 10*time.Second, "how long waiting requests may still wait when the generator stops")
	fs.StringVar(&f.logLevel, "log-level", "info", "least `LEVEL` that is logged: debug, info, warn or error")
	fs.StringVar(&f.logFormat, "log-format", "text", "`FORMAT` of the log on stderr: text or json")
	f.http.register(fs)
	f.worker.register(fs)
	f.zookeeper.register(fs)
	f.mysql.register(fs)
	f.conn.register(fs)
	completeValues(cmd, "log-level", "debug", "info", "warn", "error")
	completeValues(cmd, "log-format", "text", "json")
	return cmd
}

// run wires a generator and runs it until it is told to stop.
func (f *serveFlags) run(cmd *cobra.Command) (err error) {
	embed, err := wantsEmbedded(origin(cmd, "server"), origin(cmd, "listen"), origin(cmd, "nats-config"))
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	tags, err := parseTags(f.tags, f.maxStep)
	if err != nil {
		return err
	}
	layout := f.worker.layout()
	first, last, err := f.worker.workers()
	if err != nil {
		return err
	}
	log, err := newLogger(cmd.ErrOrStderr(), f.logLevel, f.logFormat)
	if err != nil {
		return err
	}
	defer tellStop(cmd.Context(), log)()
	db, err := f.mysql.store(log)
	if err != nil {
		return err
	}
	if db != nil {
		defer func() { err = errors.Join(err, db.Close()) }()
	}

	dir, err := openDataDir(f.dataDir)
	if errors.Is(err, errLocked) && embed {
		if at := f.natsAddress(nil); inUse(at) {
			err = fmt.Errorf("%w\n%s", err, f.natsAdvice(cmd.Flags(), nil, at))
		}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	file, place, copied, err := dir.worker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if copied {
		log.Warn("the data folder was copied or restored: this generator gets a new name and worker. "+
			"If a NATS server's state was copied with it, and the original runs or has run since, IDs of segments will repeat", "dir", dir.path)
	}
	node, err := dir.node(f.node, copied)
	if err != nil {
		return err
	}
	marks, err := allocator.OpenMarks(dir.file("marks"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, marks.Close()) }()

	empty := embed && !dir.hasStore()
	mode, nc, stop, err := f.connect(cmd, embed, dir, node, log)
	if err != nil {
		return err
	}
	defer stop()
	// After NATS: where both addresses are in use, its advice is good for both.
	listener, secure, err := f.http.listen()
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w\n%s", err, httpAdvice(cmd.Flags()))
	case err != nil:
		return err
	case listener != nil:
		defer listener.Close() // the face has closed it, if it ran
	}
	js, err := f.conn.jetStream(nc)
	if err != nil {
		return usagef("--js-domain: %w", err)
	}
	state := kvstore.Config{Conn: nc, JS: js, Replicas: f.replicas, Log: log}
	m := &member{
		state: state, dir: dir, kv: kvstore.New(state), db: db, log: log,
		want:  kvstore.Installation{Store: storeKV, Registry: registryKV, Layout: layout},
		first: first, last: last, claiming: make(chan struct{}, 1), creates: empty,
	}
	if db != nil {
		m.want.Store = storeMySQL
	}
	if m.zk, err = f.zookeeper.registry(node, mode, nc, log); err != nil {
		return err
	}
	var closing sync.WaitGroup // each may take a second: at once
	defer closing.Wait()
	if m.zk != nil {
		defer closing.Go(m.zk.Close)
		m.want.Registry = registryZooKeeper
	}
	if err := m.recall(); err != nil {
		return err
	}
	config := bus.Config{
		Conn: nc, JS: js, Marks: marks, Recent: dir.file("recent"), Node: node, Log: log, Tags: tags,
		Join: m.join, Open: m.open,
		OpenEvents:   func(ctx context.Context) error { return kvstore.OpenEvents(ctx, state, f.evtMax) },
		Installation: m.resumes(file), RegistryKind: m.want.Registry, Workers: kvstore.NewWorkers(state),
		Snowflake: snowflake.Config{
			Layout: layout, Registry: kvstore.NewWorkers(state), File: file, Place: place,
			FirstWorker: first, LastWorker: last,
			Reserve: f.reserve, Grace: f.grace, MaxBack: f.maxClockBack, MaxClockSkew: f.maxClockSkew, MaxClockWait: f.maxClockWait,
		},
		MaxBatch: f.maxBatch, MaxWait: f.maxWait, MaxWaiting: f.maxWaiting, MaxStep: f.maxStep,
		DrainTimeout: f.drainTimeout,
		Release:      version(),
		Describe:     describe(cmd.Flags()),
	}
	if m.zk != nil {
		admin, err := f.zookeeper.registry("", mode, nc, log) // so that questions do not hold up reports
		if err != nil {
			return err
		}
		defer closing.Go(admin.Close)
		config.Workers, config.Snowflake.Registry = registry{admin, m}, registry{m.zk, m}
	}
	if db != nil {
		config.Store, config.StoreErr = db, db.Err
	} else {
		config.Store = m.kv
	}
	face := "off"
	config.Ready = func() {
		fmt.Fprintf(cmd.OutOrStdout(), "leaf ready nats=%s http=%s node=%s data=%s mode=%s\n",
			nc.ConnectedUrlRedacted(), face, node, dir.path, mode)
	}
	if listener == nil {
		return bus.NewGenerator(config).Run(cmd.Context())
	}
	metrics := gateway.NewMetrics()
	config.Observer = metrics
	generator := bus.NewGenerator(config)
	server := gateway.New(gateway.Config{
		Listener: listener, TLS: secure, Token: f.http.token, Generator: generator, Metrics: metrics,
		Client: bus.NewClient(nc, bus.JetStream(js)), Log: log, DrainTimeout: f.drainTimeout,
	})
	face = server.URL()
	return together(cmd.Context(), generator.Run, server.Run)
}

// tellStop logs that the generator drains, as soon as the context is done. What
// it returns logs that it has stopped, after that.
func tellStop(ctx context.Context, log *slog.Logger) (stopped func()) {
	told := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		defer close(told)
		log.Info("draining: what was accepted is answered, and a second signal ends it at once", "signal", context.Cause(ctx))
	})
	return func() {
		if !forget() {
			<-told
			log.Info("stopped")
		}
	}
}

// together runs both until the context is done, or one ends: then the other is to end too.
func together(ctx context.Context, runs ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(runs))
	for _, run := range runs {
		go func() { ended <- run(ctx) }()
	}
	var err error
	for range runs {
		err = errors.Join(err, <-ended)
		cancel()
	}
	return err
}

// check refuses values that no generator can work with.
func (f *serveFlags) check() error {
	for _, b := range []struct {
		flag            string
		value, min, max int64
	}{
		{"max-batch", f.maxBatch, 1, allocator.LimitMaxBatch},
		{"max-waiting", f.maxWaiting, 1, allocator.LimitMaxWaiting},
		{"max-step", f.maxStep, 1, allocator.LimitStep},
		{"replicas", int64(f.replicas), 0, limitReplicas},
		{"events-max-bytes", f.evtMax, 1 << 20, 1 << 50},
	} {
		if b.value < b.min || b.value > b.max {
			return usagef("--%s is %d, not from %d to %d", b.flag, b.value, b.min, b.max)
		}
	}
	if f.maxWait <= 0 || f.maxWait > time.Minute {
		return usagef("--max-wait is %v, not above zero and at most a minute", f.maxWait)
	}
	if f.listen != "" {
		if err := checkAddress(f.listen); err != nil {
			return usagef("--listen %q: %w", f.listen, err)
		}
	}
	if f.node != "" && !nodeName.MatchString(f.node) {
		return usagef("--node %q: a node's name is 1 to 64 characters of [A-Za-z0-9_]", f.node)
	}
	if err := errors.Join(f.worker.check(), f.zookeeper.check(), f.http.check()); err != nil {
		return err
	}
	for _, b := range []struct {
		flag            string
		value, min, max time.Duration
	}{
		{"worker-reserve", f.reserve, snowflake.LeastReserve, 365 * 24 * time.Hour},
		{"worker-grace", f.grace, time.Second, 365 * 24 * time.Hour},
		{"max-clock-skew", f.maxClockSkew, 10 * time.Millisecond, time.Hour},
		{"max-clock-back", f.maxClockBack, time.Millisecond, time.Second},
		{"max-clock-wait", f.maxClockWait, time.Millisecond, time.Minute},
	} {
		if b.value < b.min || b.value > b.max {
			return usagef("--%s is %v, not from %v to %v", b.flag, b.value, b.min, b.max)
		}
	}
	if f.drainTimeout < 0 {
		return usagef("--drain-timeout is below zero")
	}
	return f.mysql.check()
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

// connect starts a NATS server in this process, or joins one. stop ends what
// was started.
func (f *serveFlags) connect(cmd *cobra.Command, embed bool, dir *dataDir, node string, log *slog.Logger) (mode string, nc *nats.Conn, stop func(), err error) {
	if !embed {
		nc, err = f.dial(f.conn, f.conn.server, node, log)
		if err != nil {
			return "", nil, nil, connectError(splitList(f.conn.server), err)
		}
		return modeJoined, nc, nc.Close, nil
	}
	server, err := embedded.Start(embedded.Config{
		Listen: f.listen, ConfigFile: f.natsConfig, StoreDir: dir.file("nats"), Name: node,
		User: f.conn.user, Password: f.conn.password, Token: f.conn.token, Logger: log,
	})
	switch {
	case errors.Is(err, embedded.ErrAddressInUse):
		return "", nil, nil, fmt.Errorf("%w\n%s", err, f.natsAdvice(cmd.Flags(), dir, f.natsAddress(err)))
	case errors.Is(err, embedded.ErrOpenToNetwork):
		return "", nil, nil, usagef("%w", err)
	case err != nil:
		return "", nil, nil, err
	}
	own := f.conn
	own.server = ""                                 // NATS_URL may be set, and is not for this one
	own.tlsCA, own.tlsCert, own.tlsKey = "", "", "" // TLS is not spoken within the process
	nc, err = f.dial(own, server.ClientURL(), node, log, server.InProcess())
	if err != nil {
		server.Close()
		return "", nil, nil, connectError([]string{server.ClientURL()}, err)
	}
	return modeEmbedded, nc, func() { nc.Close(); server.Close() }, nil
}

// dial connects the generator, for as long as it runs.
func (f *serveFlags) dial(c connFlags, url, node string, log *slog.Logger, more ...nats.Option) (*nats.Conn, error) {
	opts, err := c.options("leaf " + node)
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		// A write that cannot be sent now must fail now: sent later, it would
		// surprise. Credentials may be renewed on the server: never give up.
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.DrainTimeout(max(f.drainTimeout, time.Second)),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("the connection to NATS is lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("connected to NATS again", "url", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.Warn("NATS reports an error", "error", err, "subject", subject)
		}),
	)
	return nats.Connect(url, append(opts, more...)...)
}

// describe returns the flags that are not secret, for the events.
func describe(fs *pflag.FlagSet) map[string]string {
	config := make(map[string]string)
	fs.VisitAll(func(f *pflag.Flag) {
		if !isSecret(f) && f.Value.String() != "" && f.Name != "help" {
			config[f.Name] = f.Value.String()
		}
	})
	return config
}
