package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/natsversion"
)

// Where the generator's NATS server is.
const (
	modeEmbedded = "embedded"
	modeJoined   = "joined"
)

// connect starts a NATS server in this process, or joins one; then server is nil. stop ends
// what connect has started.
func (f *serveFlags) connect(cmd *cobra.Command, embed bool, dir *dataDir, node string, versions *natsversion.Watch, log *slog.Logger) (server *embedded.Server, nc *nats.Conn, stop func(), err error) {
	if !embed {
		nc, err = f.dial(f.conn, f.conn.server, node, versions, log)
		if err != nil {
			return nil, nil, nil, connectError(splitList(f.conn.server), err)
		}
		return nil, nc, nc.Close, nil
	}
	server, err = embedded.Start(embedded.Config{
		Listen: f.listen, ConfigFile: f.natsConfig, StoreDir: dir.file("nats"), Name: node,
		User: f.conn.user, Password: f.conn.password, Token: f.conn.token, Log: log,
	})
	switch {
	case errors.Is(err, embedded.ErrAddressInUse):
		return nil, nil, nil, fmt.Errorf("%w\n%s", err, f.natsAdvice(cmd.Flags(), false))
	case errors.Is(err, embedded.ErrOpenToNetwork):
		return nil, nil, nil, usagef("%w", err)
	case err != nil:
		return nil, nil, nil, err
	}
	own := f.conn
	own.server = ""                                 // NATS_URL may be set, and is not for this one
	own.tlsCA, own.tlsCert, own.tlsKey = "", "", "" // TLS is not spoken within the process
	nc, err = f.dial(own, server.ClientURL(), node, versions, log, server.InProcess())
	if err != nil {
		server.Close()
		return nil, nil, nil, connectError([]string{server.ClientURL()}, err)
	}
	return server, nc, func() { nc.Close(); server.Close() }, nil
}

// dial connects the generator, for as long as it runs.
func (f *serveFlags) dial(c connFlags, url, node string, versions *natsversion.Watch, log *slog.Logger, more ...nats.Option) (*nats.Conn, error) {
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
	return versions.Connect(url, append(opts, more...)...)
}
