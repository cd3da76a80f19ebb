package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
)

// Where the generator's NATS server is.
const (
	modeEmbedded = "embedded"
	modeJoined   = "joined"
)

// connect starts a NATS server in this process, or joins one.
func (s *serving) connect(context.Context) (err error) {
	state := &s.owned.State
	dir := s.owned.Folder
	if !s.embed {
		s.config.NextServer = new(generator.NextServer)
		if state.Conn, err = s.dial(s.conn, dir.Node, s.conn.server, nats.ReconnectToServer(s.config.NextServer.Pick)); err != nil {
			return connectError(splitList(s.conn.server), err)
		}
		s.defers(func() error { state.Conn.Close(); return nil })
		return nil
	}
	server, err := embedded.Start(s.embedded(dir.Node, dir.File("nats")))
	if err != nil {
		return s.embeddedError(err)
	}
	s.owned.Server = server
	s.defers(func() error { server.Close(); return nil })
	own := s.conn
	own.server = ""                                                      // NATS_URL may be set, and is not for this one
	own.tlsCA, own.tlsCert, own.tlsKey, own.tlsFirst = "", "", "", false // TLS is not spoken within the process
	if state.Conn, err = s.dial(own, dir.Node, server.ClientURL(), server.InProcess()); err != nil {
		return connectError([]string{server.ClientURL()}, err)
	}
	s.defers(func() error { state.Conn.Close(); return nil })
	return nil
}

// embedded is how the NATS server in this process runs.
func (s *serving) embedded(name, store string) embedded.Config {
	return embedded.Config{
		Listen: s.listen, ConfigFile: s.natsConfig, StoreDir: store, Name: name,
		User: s.conn.user, Password: s.conn.password, Token: s.conn.token, Latest: s.conn.latest(), Log: s.log,
	}
}

// embeddedError says what to do about an error of the NATS server in this process.
func (s *serving) embeddedError(err error) error {
	switch {
	case errors.Is(err, embedded.ErrAddressInUse):
		return fmt.Errorf("%w\n%s", err, s.natsAdvice(s.cmd.Flags(), false))
	case errors.Is(err, embedded.ErrOpenToNetwork):
		return usagef("%w", err)
	}
	return err
}

// tryJoining finds out whether the NATS to join can be used.
func (s *serving) tryJoining(ctx context.Context) error {
	nc, err := s.dial(s.conn, "(start)", s.conn.server)
	if err != nil {
		return connectError(splitList(s.conn.server), err)
	}
	defer nc.Close()
	js, err := s.conn.jetStream(nc)
	if err != nil {
		return usagef("--js-domain: %w", err)
	}
	return s.awaitJetStream(ctx, nc, js)
}

const (
	// jetStreamPatience is how long a start waits for somebody to answer for JetStream, unless the data folder belongs
	// to an installation: a cluster that is starting may not have it yet.
	jetStreamPatience = 5 * time.Second
	jetStreamAgain    = 200 * time.Millisecond
	// jetStreamAnswers is how long the start waits for one answer.
	jetStreamAnswers = time.Second
)

// awaitJetStream returns an error if nobody answers for JetStream. A JetStream that answers with an error, or late, is
// there: the generator waits for it.
func (s *serving) awaitJetStream(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error {
	for begun := time.Now(); ; {
		ask, cancel := context.WithTimeout(ctx, jetStreamAnswers)
		_, _, err := kvstore.ReadInstallation(ask, kvstore.Config{Conn: nc, JS: js, Log: s.log})
		cancel()
		if !errors.Is(err, kvstore.ErrNoJetStream) {
			return nil
		}
		if time.Since(begun) >= jetStreamPatience {
			return fmt.Errorf("the NATS server at %s has no JetStream, and Leafbus keeps its state there: enable JetStream on that server and "+
				"for this account, check --js-domain, or leave out --server to embed a NATS server (%w)", nc.ConnectedUrlRedacted(), err)
		}
		select {
		case <-time.After(jetStreamAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// dial connects the generator, for as long as it runs.
func (s *serving) dial(c connFlags, node, url string, more ...nats.Option) (*nats.Conn, error) {
	opts, err := c.options("leaf " + node)
	if err != nil {
		return nil, err
	}
	opts = append(opts, installation.Options(s.log, s.config.DrainTimeout)...)
	return installation.Connect(s.log, url, append(append(opts, more...), c.followNkey)...)
}

// awaitRestart returns an error as soon as only a restart of this process helps its NATS server.
func (s *serving) awaitRestart(ctx context.Context) error {
	if s.owned.Server == nil {
		<-ctx.Done()
		return nil
	}
	if err := s.owned.Server.AwaitRestart(ctx); err != nil {
		return fmt.Errorf("this process ends so that its supervisor starts it again: %w", err)
	}
	return nil
}

// dead returns why only a restart of this process helps, or nil.
func (s *serving) dead() error {
	if s.owned.Server == nil {
		return nil
	}
	if err := s.owned.Server.Health(); errors.Is(err, embedded.ErrRestart) {
		return err
	}
	return nil
}
