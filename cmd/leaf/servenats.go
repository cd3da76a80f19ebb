package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
)

// connect starts a NATS server in this process, or joins one.
func (s *serving) connect(context.Context) error {
	dir, url, shown := s.owned.Folder, s.conn.Server, s.conn.Server
	var option nats.Option
	if s.embed {
		server, err := embedded.Start(s.embedded(dir.Node, dir.File("nats")))
		if err != nil {
			return s.embeddedError(err)
		}
		s.owned.Server = server
		s.defers(func() error { server.Close(); return nil })
		s.conn.WithinProcess()
		shown, option = server.ClientURL(), server.InProcess()
		url = strings.Replace(shown, "tls://", "nats://", 1) // TLS is not spoken within a process
	} else {
		s.config.NextServer = new(generator.NextServer)
		option = nats.ReconnectToServer(s.config.NextServer.Pick)
	}
	nc, err := s.dial(dir.Node, url, option)
	if err != nil {
		return cli.ConnectError(shown, err)
	}
	s.defers(func() error { nc.Close(); return nil })
	s.owned.State.JS, err = s.conn.JetStream(nc)
	return err
}

// embedded is how the NATS server in this process runs.
func (s *serving) embedded(name, store string) embedded.Config {
	return embedded.Config{
		Listen: s.listen, ConfigFile: s.natsConfig, StoreDir: store, Name: name,
		User: s.conn.User, Password: s.conn.Password, Token: s.conn.Token, Latest: s.conn.Latest(), Log: s.log,
	}
}

// joinHint is the command that joins the generator at the address of this one.
func (s *serving) joinHint() string {
	at := reachable(cmp.Or(s.listen, defaultListen))
	if strings.HasSuffix(at, ":0") {
		at = "HOST:PORT"
	}
	return fmt.Sprintf("  leaf serve -s nats://%s --data-dir leaf-data-2 --http ''", at)
}

// embeddedError says what to do about an error of the NATS server in this process.
func (s *serving) embeddedError(err error) error {
	_, mistake := errors.AsType[embedded.ConfigError](err)
	switch {
	case errors.Is(err, embedded.ErrAddressInUse) && s.natsConfig != "":
		return fmt.Errorf("%w. Give another --listen, or change the address in %s", err, s.natsConfig)
	case errors.Is(err, embedded.ErrAddressInUse):
		host, _, _ := net.SplitHostPort(cmp.Or(s.listen, defaultListen))
		return fmt.Errorf("%w. Is a generator running there? Join it, with your other flags:\n%s\nor listen "+
			"elsewhere:\n"+
			"  leaf serve --listen %s --http 127.0.0.1:0", err, s.joinHint(), net.JoinHostPort(host, "0"))
	case mistake, errors.Is(err, embedded.ErrOpenToNetwork):
		return cli.UsageError{Err: err}
	}
	return err
}

// tryJoining finds out whether the NATS to join can be used.
func (s *serving) tryJoining(ctx context.Context) error {
	nc, err := s.dial("(start)", s.conn.Server)
	if err != nil {
		return cli.ConnectError(s.conn.Server, err)
	}
	defer nc.Close()
	js, err := s.conn.JetStream(nc)
	if err != nil {
		return err
	}
	return s.awaitJetStream(ctx, js)
}

const (
	// jetStreamPatience is how long a start waits for somebody to answer for JetStream, unless the
	// data folder belongs to an installation: a cluster that is starting may not have it yet.
	// --check does not wait.
	jetStreamPatience = 5 * time.Second
	jetStreamAgain    = 200 * time.Millisecond
	// jetStreamAnswers is how long the start waits for one answer.
	jetStreamAnswers = time.Second
)

// awaitJetStream returns an error if nobody answers for JetStream. A JetStream that answers with an
// error, or late, is there: the generator waits for it.
func (s *serving) awaitJetStream(ctx context.Context, js jetstream.JetStream) error {
	for begun := time.Now(); ; {
		ask, cancel := context.WithTimeout(ctx, jetStreamAnswers)
		_, _, err := kvstore.ReadInstallation(ask, kvstore.Config{JS: js, Log: s.log})
		cancel()
		if !errors.Is(err, kvstore.ErrNoJetStream) {
			return nil
		}
		if s.look || time.Since(begun) >= jetStreamPatience {
			return fmt.Errorf("the NATS server at %s (version %s) has no JetStream, and Leafbus keeps its state there: "+
				"enable JetStream on that server and for this account, check --js-domain, or leave out --server to "+
				"embed a NATS server (%w)",
				js.Conn().ConnectedUrlRedacted(), js.Conn().ConnectedServerVersion(), err)
		}
		select {
		case <-time.After(jetStreamAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// dial connects the generator, for as long as it runs.
func (s *serving) dial(node, url string, more ...nats.Option) (*nats.Conn, error) {
	opts, err := s.conn.Options("leaf " + node)
	if err != nil {
		return nil, err
	}
	opts = append(opts, installation.Options(s.log, s.config.DrainTimeout)...)
	return installation.Connect(s.log, url, append(append(opts, more...), s.conn.FollowNkey)...)
}

// reloadNATS reads the file of --nats-config again at each SIGHUP. Without such a file the signal
// ends the process, as it does by default, unless systemd sent it: it sends SIGHUP to reload, and
// nothing is to be read again.
func (s *serving) reloadNATS(ctx context.Context) error {
	if s.natsConfig == "" && s.supervisor.socket == "" {
		<-ctx.Done()
		return nil
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
		}
		if s.natsConfig == "" {
			continue
		}
		if err := s.owned.Server.Reload(); err != nil {
			s.log.Error("the NATS configuration stays as it was", "error", err)
		} else {
			s.log.Info("the NATS configuration is read again", "file", s.natsConfig)
		}
	}
}
