package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/gateway"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/internal/collector"
)

// run starts what a generator needs, and runs it until it is asked to stop.
func (f *serveFlags) run(cmd *cobra.Command) (err error) {
	collector.Tune()
	s := serving{serveFlags: f, cmd: cmd}
	if err := s.prepare(); err != nil {
		return err
	}
	defer tellStop(cmd.Context(), s.log)()
	ctx, stop := context.WithCancelCause(cmd.Context()) // of all that runs
	defer endAnyway(ctx, 2*f.config.DrainTimeout+stopSlack, s.log)()
	defer stop(nil)
	defer func() { err = errors.Join(err, s.close()) }()
	for _, step := range []func(context.Context) error{s.takePorts, s.openFolder, s.connect, s.openStores} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return s.serve(ctx, stop)
}

// serving is a generator from its start to its stop, and all that it needs.
type serving struct {
	*serveFlags
	cmd   *cobra.Command
	log   *slog.Logger
	embed bool // a NATS server in this process
	// belongs: the data folder belonged to an installation before the start.
	belongs bool

	owned    installation.Config
	listener net.Listener // of HTTP; nil: off
	tokens   *reread[gateway.Tokens]
	cert     *reread[tls.Certificate] // nil: no TLS
	closers  []func() error
}

// prepare checks the flags.
func (s *serving) prepare() (err error) {
	if s.embed, err = wantsEmbedded(origin(s.cmd, "server"), origin(s.cmd, "listen"), origin(s.cmd, "nats-config")); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	s.config.Snowflake.Layout = s.worker.layout()
	s.config.Refresh, s.config.Describe = s.mysql.refresh, describe(s.cmd.Flags())
	if s.config.Tags, err = parseTags(s.tags, s.config.MaxStep); err != nil {
		return err
	}
	if s.config.Snowflake.FirstWorker, s.config.Snowflake.LastWorker, err = s.worker.workers(); err != nil {
		return err
	}
	s.log, err = newLogger(s.cmd.ErrOrStderr(), s.logLevel, s.logFormat)
	return err
}

// defers makes close call f, before what it was given earlier.
func (s *serving) defers(f func() error) { s.closers = append(s.closers, f) }

func (s *serving) close() (err error) {
	for _, f := range slices.Backward(s.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// takePorts opens the port of HTTP, and finds out whether NATS can be had: before anything is written, so that a start
// that fails for that leaves no data folder. Where the addresses of both are in use, the advice of NATS is good for
// both.
func (s *serving) takePorts(ctx context.Context) error {
	folder, err := installation.ExamineFolder(s.dataDir)
	if err == nil {
		err = folder.Used
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	s.belongs = folder.Installation != ""
	if errors.Is(err, installation.ErrLocked) && s.embed && s.natsConfig == "" && inUse(s.clientAddress()) {
		err = fmt.Errorf("%w\n%s", err, s.natsAdvice(s.cmd.Flags(), true))
	}
	switch {
	case err != nil:
	case s.embed:
		err = s.embeddedError(embedded.Check(s.embedded("leaf", filepath.Join(s.dataDir, "nats"))))
	case !s.belongs:
		err = s.tryJoining(ctx)
	}
	if err != nil {
		return err
	}
	if s.cert, err = s.http.certificate(); err != nil {
		return err
	}
	if s.tokens, err = s.http.tokens(s.cmd.Flags()); err != nil {
		return err
	}
	s.listener, err = s.http.listen()
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w\n%s", err, httpAdvice(s.cmd.Flags()))
	}
	if s.listener != nil {
		s.defers(func() error { s.listener.Close(); return nil }) // the gateway has closed it, if it ran
	}
	return err
}

// openFolder opens the data folder. Before it checks the DSN: a usage error leaves no folder.
func (s *serving) openFolder(context.Context) error {
	db, err := s.mysql.store(s.log)
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
		s.log.Warn("--new-installation has no effect, because the data folder belongs to an installation. Remove the flag: "+
			"with an empty data folder it would begin at 1", "dir", dir.Path)
	}
	if dir.Copied {
		s.log.Warn("the data folder was copied or restored: this generator gets a new name and worker. "+
			"If a NATS server's state was copied with it, and the original runs or has run since, IDs of tags will repeat", "dir", dir.Path)
	}
	return nil
}

// openStores says where the tags and the workers are. Whose they are is found out later.
func (s *serving) openStores(ctx context.Context) error {
	nc := s.owned.State.Conn
	js, err := s.conn.jetStream(nc)
	if err != nil {
		return usagef("--js-domain: %w", err)
	}
	if s.embed && !s.belongs {
		if err := s.awaitJetStream(ctx, nc, js); err != nil { // the account of --nats-config may have none
			return err
		}
	}
	s.owned.State.JS, s.owned.State.Replicas, s.owned.State.Log = js, s.replicas, s.log
	s.owned.EventsMaxBytes, s.owned.EventsMaxAge, s.owned.Adopt = s.eventsMaxBytes, s.eventsMaxAge, s.adopt
	if s.zookeeper.hosts == "" {
		return nil
	}
	var closing sync.WaitGroup // at the same time, because each may take a few seconds
	s.defers(func() error { closing.Wait(); return nil })
	// Two connections, so that questions of administration do not hold up reports.
	for node, registry := range map[string]*installation.Registry{s.owned.Folder.Node: &s.owned.Workers, "": &s.owned.Administration} {
		r, err := s.zookeeper.registry(node, s.config.Snowflake.Layout, s.owned.Server, s.log)
		if err != nil {
			return err
		}
		s.defers(func() error { closing.Go(r.Close); return nil })
		*registry = r
	}
	return nil
}

// serve runs the generator, and what watches it or passes requests to it.
func (s *serving) serve(ctx context.Context, stop context.CancelCauseFunc) error {
	nc, js := s.owned.State.Conn, s.owned.State.JS
	if s.listener != nil {
		s.config.Describe["http"] = s.listener.Addr().String() // the port that the system chose
	}
	config, err := s.owned.Generator(s.config)
	if err != nil {
		return err
	}
	face, mode := "off", modeJoined
	if s.embed {
		mode = modeEmbedded
	}
	var g *generator.Generator
	config.Ready = func() {
		fmt.Fprintf(s.cmd.OutOrStdout(), "leaf ready nats=%s http=%s node=%s data=%s mode=%s%s\n",
			nc.ConnectedUrlRedacted(), face, config.Node, s.owned.Folder.Path, mode, waitsFor(g.Readiness()))
	}
	runs := []func(context.Context) error{s.awaitRestart}
	if s.listener == nil {
		g = generator.New(config)
		return together(ctx, stop, append(runs, g.Run)...)
	}
	metrics := gateway.NewMetrics()
	config.Observer = metrics
	g = generator.New(config)
	server := gateway.New(gateway.Config{
		Listener: s.listener, TLS: s.tlsConfig(), Tokens: s.tokens.get, Generator: g, Metrics: metrics,
		Conn: nc, JS: js, Log: s.log, DrainTimeout: s.config.DrainTimeout,
		Dead: s.dead,
	})
	face = server.URL()
	return together(ctx, stop, append(runs, g.Run, server.Run, s.rereadSecrets)...)
}

// tlsConfig is that of HTTP; nil: no TLS.
func (s *serving) tlsConfig() *tls.Config {
	if s.cert == nil {
		return nil
	}
	return &tls.Config{NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return s.cert.value.Load(), nil
	}}
}

// rereadSecrets lets HTTP follow the files of its secrets.
func (s *serving) rereadSecrets(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { s.tokens.run(ctx, s.log) })
	if s.cert != nil {
		all.Go(func() { s.cert.run(ctx, s.log) })
	}
	all.Wait()
	return nil
}

// waitsFor is the end of the line that says that the generator is ready: the kinds of IDs that it cannot give yet.
func waitsFor(r admin.Readiness) string {
	var kinds []string
	if !r.Segment {
		kinds = append(kinds, "segments")
	}
	if !r.Snowflake {
		kinds = append(kinds, "snowflakes")
	}
	if len(kinds) == 0 {
		return ""
	}
	return " waiting=" + strings.Join(kinds, ",")
}

// tellStop logs that the generator drains, as soon as the context is done. What
// it returns logs that it has stopped, after that.
func tellStop(ctx context.Context, log *slog.Logger) (stopped func()) {
	told := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		defer close(told)
		log.Info("stopping: accepted requests are answered first; a second signal ends the process at once", "signal", context.Cause(ctx))
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
