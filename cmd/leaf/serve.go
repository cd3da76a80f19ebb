package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/gateway"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/bus/natsversion"
	"github.com/leafbus/leafbus/snowflake"
)

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
	ctx, stop := context.WithCancelCause(cmd.Context()) // of all that runs
	defer endAnyway(ctx, 2*f.drainTimeout+stopSlack, log)()
	defer stop(nil)
	db, err := f.mysql.store(log)
	if err != nil {
		return err
	}
	if db != nil {
		defer func() { err = errors.Join(err, db.Close()) }()
	}

	dir, err := openDataDir(f.dataDir)
	if errors.Is(err, errLocked) && embed && f.natsConfig == "" && inUse(f.clientAddress()) {
		err = fmt.Errorf("%w\n%s", err, f.natsAdvice(cmd.Flags(), true))
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
	versions := natsversion.New(log)
	own, nc, disconnect, err := f.connect(cmd, embed, dir, node, versions, log)
	if err != nil {
		return err
	}
	defer disconnect()
	mode := modeJoined
	if own != nil {
		mode = modeEmbedded
	}
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
	if err := versions.Check(ctx, nc, js); err != nil {
		return err
	}
	watchVersions := func(ctx context.Context) error { return versions.Run(ctx, nc, js) }
	state := kvstore.Config{Conn: nc, JS: js, Replicas: f.replicas, Log: log}
	m := &member{
		state: state, dir: dir, kv: kvstore.New(state), db: db, log: log,
		want:  kvstore.Installation{Store: kvstore.KindKV, Registry: kvstore.KindKV, Layout: layout},
		first: first, last: last, claiming: make(chan struct{}, 1), creates: empty,
	}
	if db != nil {
		m.want.Store = kvstore.KindMySQL
	}
	if m.zk, err = f.zookeeper.registry(node, mode, nc, log); err != nil {
		return err
	}
	var closing sync.WaitGroup // at the same time, because each may take a few seconds
	defer closing.Wait()
	if m.zk != nil {
		defer closing.Go(m.zk.Close)
		m.want.Registry = kvstore.KindZooKeeper
	}
	if err := m.recall(); err != nil {
		return err
	}
	config := generator.Config{
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
		config.Store, config.StoreErr = m.kv, m.kv.Err
	}
	watch := watchServer(own)
	config.NATSErr = watch.err
	face := "off"
	config.Ready = func() {
		fmt.Fprintf(cmd.OutOrStdout(), "leaf ready nats=%s http=%s node=%s data=%s mode=%s\n",
			nc.ConnectedUrlRedacted(), face, node, dir.path, mode)
	}
	if listener == nil {
		return together(ctx, stop, generator.New(config).Run, watch.run, watchVersions)
	}
	metrics := gateway.NewMetrics()
	config.Observer = metrics
	generator := generator.New(config)
	server := gateway.New(gateway.Config{
		Listener: listener, TLS: secure, Token: f.http.token, Generator: generator, Metrics: metrics,
		Client: bus.NewClient(nc, bus.JetStream(js)), Log: log, DrainTimeout: f.drainTimeout,
		Dead: watch.dead,
	})
	face = server.URL()
	return together(ctx, stop, generator.Run, server.Run, watch.run, watchVersions)
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

// stopSlack is how much longer than its drain, of NATS and of HTTP, a stop may take.
const stopSlack = 30 * time.Second

// endAnyway ends the process this long after the context is done, by a signal or because
// something failed, unless ended is called before. It is for the waits for a disk that have
// no bound: those of the embedded NATS server and those of a start.
func endAnyway(ctx context.Context, after time.Duration, log *slog.Logger) (ended func()) {
	done := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		select {
		case <-done:
		case <-time.After(after):
			log.Error("the stop hangs, and the process ends anyway: does its disk hang?", "after", after, "why", context.Cause(ctx))
			os.Exit(exitFailed)
		}
	})
	return func() {
		forget()
		close(done)
	}
}

// together runs all until the context is done, or until one ends. Then it calls stop, which
// ends the context and so the others, and begins the time that a stop may take.
func together(ctx context.Context, stop context.CancelCauseFunc, runs ...func(context.Context) error) error {
	ended := make(chan error, len(runs))
	for _, run := range runs {
		go func() { ended <- run(ctx) }()
	}
	var err error
	for range runs {
		err = errors.Join(err, <-ended)
		stop(err)
	}
	return err
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
