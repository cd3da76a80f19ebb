package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/natsversion"
)

// Where the generator's NATS server is.
const (
	modeEmbedded = "embedded"
	modeJoined   = "joined"
)

// connect starts a NATS server in this process, or joins one.
func (s *serving) connect(context.Context) (err error) {
	s.versions = natsversion.New(s.log)
	state := &s.owned.State
	if !s.embed {
		if state.Conn, err = s.dial(s.conn, s.conn.server); err != nil {
			return connectError(splitList(s.conn.server), err)
		}
		s.defers(func() error { state.Conn.Close(); return nil })
		return nil
	}
	dir := s.owned.Folder
	server, err := embedded.Start(embedded.Config{
		Listen: s.listen, ConfigFile: s.natsConfig, StoreDir: dir.File("nats"), Name: dir.Node,
		User: s.conn.user, Password: s.conn.password, Token: s.conn.token, Log: s.log,
	})
	switch {
	case errors.Is(err, embedded.ErrAddressInUse):
		return fmt.Errorf("%w\n%s", err, s.natsAdvice(s.cmd.Flags(), false))
	case errors.Is(err, embedded.ErrOpenToNetwork):
		return usagef("%w", err)
	case err != nil:
		return err
	}
	s.owned.Server = server
	s.defers(func() error { server.Close(); return nil })
	own := s.conn
	own.server = ""                                 // NATS_URL may be set, and is not for this one
	own.tlsCA, own.tlsCert, own.tlsKey = "", "", "" // TLS is not spoken within the process
	if state.Conn, err = s.dial(own, server.ClientURL(), server.InProcess()); err != nil {
		return connectError([]string{server.ClientURL()}, err)
	}
	s.defers(func() error { state.Conn.Close(); return nil })
	return nil
}

// dial connects the generator, for as long as it runs.
func (s *serving) dial(c connFlags, url string, more ...nats.Option) (*nats.Conn, error) {
	opts, err := c.options("leaf " + s.owned.Folder.Node)
	if err != nil {
		return nil, err
	}
	opts = append(opts, installation.Options(s.log, s.config.DrainTimeout)...)
	return s.versions.Connect(url, append(opts, more...)...)
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
