package installation

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// Database keeps max_id of the tags in trend order.
type Database interface {
	Place
	allocator.Numbers
	// Open comes after Claim. It may be called until it succeeds.
	Open(ctx context.Context) error
}

// Registry keeps the workers in place of JetStream.
type Registry interface {
	Place
	snowflake.Registry
}

// Config is what a generator was given.
type Config struct {
	State kvstore.Config // the connection, and how buckets are made; with a Log
	// EventsMaxBytes and EventsMaxAge bound the event stream if this generator creates it; see
	// [kvstore.Events].
	EventsMaxBytes int64
	EventsMaxAge   time.Duration
	Server         *embedded.Server // of NATS, in this process; nil: the generator joined one
	Folder         *Folder
	Database       Database // nil: the records in JetStream alone have max_id
	// Workers keeps the workers, and Administration is the same for questions, so that they do not
	// hold up reports. nil: the workers are in JetStream.
	Workers, Administration Registry
	// Adopt makes the installation's record again if JetStream lost it and the data folder names
	// the installation.
	Adopt bool
}

// Generator completes the configuration of a generator with all that depends on its installation.
// It overwrites those fields. cfg.Snowflake needs Layout. Call it once.
func (c Config) Generator(cfg generator.Config) (generator.Config, error) {
	m, err := newMember(c, cfg.Snowflake.Layout)
	if err != nil {
		return cfg, err
	}
	cfg.Conn, cfg.JS, cfg.Log = c.State.JS.Conn(), c.State.JS, c.State.Log
	cfg.Address = c.State.JS.Conn().ConnectedUrlRedacted
	cfg.Node, cfg.Index, cfg.LoadAhead = c.Folder.Node, c.Folder.Index, true
	cfg.Join, cfg.Open, cfg.Installation = m.join, m.open, m.resumes()
	cfg.Witness = m.known
	cfg.OpenEvents = kvstore.Events{Config: c.State, MaxBytes: c.EventsMaxBytes, MaxAge: c.EventsMaxAge}.Open
	cfg.Records, cfg.Keys, cfg.StoreKind = m.records, kvstore.NewKeys(c.State), m.want.Store
	cfg.EndLoss, cfg.Unwritable = m.records.EndLoss, m.records.Unwritable
	if c.Database != nil { // else a nil *schema.Store would be an interface that is not nil
		cfg.Numbers = c.Database
	}
	lasting := c.Folder.lasts()
	cfg.Checks = map[string]func(context.Context) error{
		"replicas.few":     c.State.FewReplicas,
		"folder.temporary": func(context.Context) error { return lasting },
	}
	if c.Server != nil {
		cfg.Checks["disk.low"] = func(context.Context) error { return c.Server.LowRoom() }
		cfg.Address = c.Server.ClientURL // Conn is one within the process, without TLS
		cfg.NATSErr, cfg.Routes = c.Server.Health, c.Server.Routes
	}
	cfg.RegistryKind = m.want.Registry
	cfg.Workers, cfg.Snowflake.Registry = kvstore.NewWorkers(c.State), kvstore.NewWorkers(c.State)
	if c.Workers != nil {
		cfg.Workers, cfg.Snowflake.Registry = &claimed{Registry: c.Administration, m: m}, &claimed{Registry: c.Workers, m: m}
	}
	cfg.Snowflake.File, cfg.Snowflake.Place = c.Folder.Worker, c.Folder.Place
	return cfg, nil
}

// Options are those of a generator's connection. A write that cannot be sent now must fail now:
// sent later, it would surprise. Credentials may be renewed on the server: the connection never
// gives up.
func Options(log *slog.Logger, drain time.Duration) []nats.Option {
	return []nats.Option{
		// Answers to generators have secrets, such as the master key of opaque tags. So no caller
		// may read them.
		func(o *nats.Options) error { o.InboxPrefix = cmp.Or(o.InboxPrefix, wire.SubjectInbox); return nil },
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.DrainTimeout(max(drain, time.Second)),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("the connection to NATS is lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("connected to NATS again", "url", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject, level := "", slog.LevelWarn
			if sub != nil {
				subject = sub.Subject
			}
			if to, ok := wire.DeniedPublication(err); ok && !strings.HasPrefix(to, "leaf.") && to[0] != '$' {
				level = slog.LevelDebug // likely to a request from before a reconnect, which allow_responses does not know any more
			}
			log.Log(context.Background(), level, "NATS reports an error", "error", err, "subject", subject)
		}),
	}
}
