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
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/gateway"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/collector"
)

// serving is a generator from its start to its stop, and all that it needs. The steps of run use it
// one by one.
type serving struct {
	*serveFlags
	cmd   *cobra.Command
	log   *slog.Logger
	embed bool // a NATS server in this process

	supervisor supervisor
	// belongs: the data folder belonged to an installation before the start.
	belongs bool

	owned    installation.Config
	listener net.Listener // of HTTP; nil: off
	tokens   *reread[gateway.Tokens]
	cert     *reread[*tls.Certificate]
	closers  []func() error
}

// run starts what a generator needs, and runs it until it is asked to stop.
func (f *serveFlags) run(cmd *cobra.Command) (err error) {
	collector.Tune()
	s := serving{serveFlags: f, cmd: cmd, supervisor: newSupervisor(os.Getenv)}
	if err := s.prepare(); err != nil {
		return err
	}
	if s.look {
		return s.checkOnly()
	}
	defer context.AfterFunc(cmd.Context(), func() {
		s.log.Info("stopping: accepted requests are answered first; a second signal ends the process at once", "signal",
			context.Cause(cmd.Context()))
	})()
	ctx, stop := context.WithCancelCause(cmd.Context()) // of all that runs
	defer endAnyway(ctx, 2*f.config.DrainTimeout+stopSlack, func() {
		s.log.Error("the stop hangs, and the process ends anyway: does its disk hang?", "why", context.Cause(ctx))
		os.Exit(cli.ExitFailed)
	})()
	defer stop(nil)
	defer func() {
		if err = errors.Join(err, s.close()); cmd.Context().Err() != nil {
			s.log.Info("stopped")
		}
	}()
	for _, step := range []func(context.Context) error{s.takePorts, s.openFolder, s.connect, s.openStores} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return s.serve(ctx, stop)
}

// prepare checks the flags.
func (s *serving) prepare() (err error) {
	flags := s.cmd.Flags()
	ours := s.listen != "" || s.natsConfig != ""
	if ours && s.conn.Server != "" && !cli.FromNATS(flags, "server") {
		return cli.Usagef("--server joins a running NATS, --listen and --nats-config start one: " +
			"give one or the other (flags, LEAF_ variables and the file count alike)")
	}
	s.embed = ours || s.conn.Server == "" // NATS_URL is meant for every program
	if err := s.check(); err != nil {
		return err
	}
	if s.log, err = cli.NewLogger(s.cmd.ErrOrStderr(), s.logLevel, s.logFormat); err != nil {
		return err
	}
	if s.cert, err = newReread(s.log, "the certificate of HTTP", s.http.certificate); err != nil {
		return err
	}
	s.tokens, err = newReread(s.log, "the tokens of HTTP", s.http.tokens)
	s.config.Describe = cli.Describe(flags)
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

// takePorts opens the port of HTTP, and finds out whether NATS can be had: before anything is
// written, so that a start that fails for that leaves no data folder.
func (s *serving) takePorts(ctx context.Context) error {
	folder, err := installation.ExamineFolder(s.dataDir)
	if err == nil {
		err = folder.Used
	}
	s.belongs = folder.Installation != ""
	switch {
	case errors.Is(err, installation.ErrLocked) && s.embed:
		err = fmt.Errorf("%w. To run a second generator beside it, with your other flags:\n%s", err, s.joinHint())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
	case s.embed:
		err = s.embeddedError(embedded.Check(s.embedded("leaf", filepath.Join(s.dataDir, "nats"))))
	case !s.belongs:
		err = s.tryJoining(ctx)
	default:
		err = nil
	}
	if err != nil {
		return err
	}
	if s.listener, err = s.http.listen(); s.listener != nil {
		s.defers(func() error { s.listener.Close(); return nil }) // the gateway has closed it, if it ran
	}
	return err
}

// serve runs the generator, and what watches it or passes requests to it.
func (s *serving) serve(ctx context.Context, stop context.CancelCauseFunc) error {
	if s.listener != nil {
		s.config.Describe["http"] = s.listener.Addr().String() // the port that the system chose
	}
	config, err := s.owned.Generator(s.config)
	if err != nil {
		return err
	}
	face, mode := "off", "joined"
	if s.embed {
		mode = "embedded"
	}
	var g *generator.Generator
	config.Ready = func() {
		fmt.Fprintf(s.cmd.OutOrStdout(), "leaf ready nats=%s http=%s node=%s data=%s mode=%s%s\n",
			config.Address(), face, config.Node, word(s.owned.Folder.Path), mode, waitsFor(g.Readiness()))
		if err := s.supervisor.notify("READY=1"); err != nil {
			s.log.Error(err.Error())
		}
	}
	defer context.AfterFunc(ctx, func() { _ = s.supervisor.notify("STOPPING=1") })() // it ends in any case
	watch := func(ctx context.Context) error { return s.supervisor.watch(ctx, s.dead) }
	if s.listener == nil {
		g = generator.New(config)
		return together(ctx, stop, s.awaitRestart, s.reloadNATS, watch, g.Run)
	}
	metrics := gateway.NewMetrics()
	config.Observer = metrics
	g = generator.New(config)
	server := gateway.New(gateway.Config{
		Listener: s.listener, TLS: s.tlsConfig(), Tokens: s.tokens.get, Generator: g, Metrics: metrics,
		JS: s.owned.State.JS, Log: s.log, DrainTimeout: s.config.DrainTimeout, Dead: s.dead,
	})
	face = server.URL()
	return together(ctx, stop, s.awaitRestart, s.reloadNATS, watch, g.Run, server.Run, s.tokens.run, s.cert.run)
}

// tlsConfig is that of HTTP; nil: no TLS.
func (s *serving) tlsConfig() *tls.Config {
	if s.cert.get() == nil {
		return nil
	}
	return &tls.Config{NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.cert.get(), nil
		}}
}

// word is a value of that line: in quotes if a program could not find its end otherwise.
func word(value string) string {
	if strings.ContainsAny(value, " \t\n\"") {
		return strconv.Quote(value)
	}
	return value
}

// waitsFor is the end of the line that says that the generator is ready: the kinds of IDs that it
// cannot give yet.
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
