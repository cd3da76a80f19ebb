package embedded

import (
	"cmp"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// pingEvery is how often the server asks a client or another server whether it is alive. The
	// second answer in a row that does not come ends the connection (ping_max, by default 2), so
	// within 4 s. The default of nats-server would take 6 to 8 minutes, and 90 s for another server
	// of the cluster. Meanwhile the server gives requests to a generator that cannot answer.
	pingEvery = time.Second
	// maxCatchup is how many bytes may be under way to a server that copies a stream. Pings wait
	// behind them. With the default of nats-server, 64 MiB, a network of 50 Mbit/s loses its routes
	// again and again.
	maxCatchup = 8 << 20
	// reportRoutes is after how many attempts, one a second, a lost route is logged again.
	// nats-server would log each one, four times a second for a machine that is away.
	reportRoutes = 60
)

// Config says how to run the server. StoreDir is required; the zero value of every other field is a
// working default.
type Config struct {
	// Listen is the host:port for clients and beats ConfigFile. Port 0 is any free port; an empty
	// host is every interface. If Listen is empty, ConfigFile decides, and where that says nothing
	// either, 127.0.0.1:4222.
	Listen string
	// ConfigFile is the path of an optional nats-server configuration: TLS, accounts, WebSocket,
	// cluster and the like. Server.Reload reads it again. Accounts must enable JetStream
	// themselves.
	ConfigFile string
	// StoreDir is the folder of JetStream and beats ConfigFile. It is created if missing. Two
	// servers must never share one: nats-server takes no lock.
	StoreDir string
	// Name is the server's name unless ConfigFile sets one. Empty is a random one. In a cluster
	// every server needs a name of its own.
	Name string
	// User and Password, or Token, are demanded of every client, in-process ones too. They are
	// ignored if ConfigFile sets up its own authentication.
	User, Password, Token string
	// Latest returns the password or the token that a client must have which connects now. Default:
	// those above.
	Latest func() (password, token string)
	// Log takes what the server logs: notices at level Debug, warnings and errors
	// at their own. Default: slog.Default.
	Log *slog.Logger
}

// ConfigError is returned by [Start] if a Config, or its ConfigFile, has a mistake.
type ConfigError struct{ error }

// Unwrap returns the mistake.
func (e ConfigError) Unwrap() error { return e.error }

// options turns c into what nats-server understands.
func (c Config) options() (*server.Options, error) {
	opts := &server.Options{}
	if c.ConfigFile != "" {
		var err error
		if opts, err = server.ProcessConfigFile(c.ConfigFile); err != nil {
			return nil, fmt.Errorf("NATS configuration file %s: %w", c.ConfigFile, err)
		}
		opts.ConfigFile = "" // a reload by nats-server itself would undo what is set below
	}
	if err := c.setAddress(opts); err != nil {
		return nil, err
	}
	if !hasCredentials(opts) {
		if err := c.setCredentials(opts); err != nil {
			return nil, err
		}
	}
	opts.ServerName = cmp.Or(opts.ServerName, c.Name)
	opts.JetStream = true
	opts.StoreDir = c.StoreDir
	opts.SyncAlways = true
	opts.DisableJetStreamBanner = true
	opts.PingInterval = cmp.Or(opts.PingInterval, pingEvery)
	opts.ReconnectErrorReports = cmp.Or(opts.ReconnectErrorReports, reportRoutes)
	opts.JetStreamMaxCatchup = cmp.Or(opts.JetStreamMaxCatchup, maxCatchup)
	opts.NoSigs = true // nats-server would exit the process past our drain
	return opts, nil
}

// setAddress decides where clients are served. It leaves a missing port to
// nats-server, whose default is the one we document.
func (c Config) setAddress(opts *server.Options) error {
	if c.Listen == "" {
		opts.Host = cmp.Or(opts.Host, "127.0.0.1")
		return nil
	}
	host, digits, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen address %q is not host:port, such as 127.0.0.1:4222: %w", c.Listen, err)
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return fmt.Errorf("listen address %q: the port must be 0 to 65535: %w", c.Listen, err)
	}
	opts.Host = cmp.Or(host, server.DEFAULT_HOST)
	opts.Port = int(port)
	if port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	return nil
}

// setCredentials refuses combinations of which nats-server would silently
// ignore a part, and so let in clients that the caller means to keep out.
func (c Config) setCredentials(opts *server.Options) error {
	if (c.User == "") != (c.Password == "") {
		return errors.New("a user and a password go together: give both --user and --password, or --token")
	}
	if c.User != "" && c.Token != "" {
		return errors.New("clients show a password or a token: give --user and --password, or --token, not both")
	}
	if c.User != "" || c.Token != "" {
		secrets := c.Latest
		if secrets == nil {
			secrets = func() (string, string) { return c.Password, c.Token }
		}
		opts.CustomClientAuthentication = credentials{c.User, secrets}
	}
	return nil
}

// credentials checks clients against a password or a token, which can change. Nats-server would
// keep a plain one, and warn of it.
type credentials struct {
	user    string
	secrets func() (password, token string)
}

// Check implements [server.Authentication].
func (c credentials) Check(client server.ClientAuthentication) bool {
	equal := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	shown := client.GetOpts()
	password, token := c.secrets()
	if c.user != "" {
		return equal(shown.Username, c.user) && equal(shown.Password, password)
	}
	return token != "" && equal(shown.Token, token)
}
