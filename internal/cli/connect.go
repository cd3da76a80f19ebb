package cli

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	pingEvery    = time.Second     // how often a connection asks whether its server is alive
	pingsOut     = 2               // how many of these questions may have no answer
	writeTimeout = 2 * time.Second // the longest write to a server
)

// Conn says how to connect to NATS. Its flags and variables are those of the nats CLI.
type Conn struct {
	Server                string        // URLs, separated by commas
	User, Password, Token string        // as they were at the start; see [Conn.Latest]
	JSDomain              string        // of JetStream
	InboxPrefix           string        // as the flag has it
	Timeout               time.Duration // the longest wait for NATS; above zero
	Context               string        // name of a NATS context; clients only

	creds, nkey             string // files
	tlsCA, tlsCert, tlsKey  string // files
	tlsFirst                bool
	ownInbox                string // in place of _INBOX, where neither the flag nor the NATS context says more
	passwordFile, tokenFile string
}

// Register adds the flags of a generator as settings of a group, and the server as one of the group
// start. It uses no NATS contexts: an installation must not depend on the context that someone has
// selected.
func (c *Conn) Register(fs *pflag.FlagSet, start, group string) {
	Settings(fs, start, func(fs *pflag.FlagSet) {
		fs.StringVarP(&c.Server, "server", "s", "", "`URL` of the NATS server, or several with commas")
		annotate(fs.Lookup("server"), noteSecret, "true") // a URL may hold a password
		annotate(fs.Lookup("server"), noteNATS, "NATS_URL")
	})
	Settings(fs, group, func(fs *pflag.FlagSet) {
		for _, f := range []struct {
			value                 *string
			name, variable, usage string
		}{
			{&c.creds, "creds", "NATS_CREDS", "credentials `FILE` for NATS"},
			{&c.nkey, "nkey", "NATS_NKEY", "nkey seed `FILE` for NATS"},
			{&c.User, "user", "NATS_USER", "user `NAME` for NATS"},
			{&c.Password, "password", "NATS_PASSWORD", "password for NATS"},
			{&c.Token, "token", "NATS_TOKEN", "token for NATS"},
			{&c.tlsCA, "tlsca", "NATS_CA", "certificate authority `FILE` that signed the certificate of the NATS server"},
			{&c.tlsCert, "tlscert", "NATS_CERT", "client certificate `FILE` for NATS"},
			{&c.tlsKey, "tlskey", "NATS_KEY", "key `FILE` of the client certificate"},
		} {
			fs.StringVar(f.value, f.name, "", f.usage)
			annotate(fs.Lookup(f.name), noteNATS, f.variable)
		}
		SecretFile(fs, "password", &c.passwordFile)
		SecretFile(fs, "token", &c.tokenFile)
		Number(fs, &c.Timeout, "timeout", 5*time.Second, 1, math.MaxInt64, "longest wait for NATS")
		annotate(fs.Lookup("timeout"), noteNATS, "NATS_TIMEOUT")
		fs.BoolVar(&c.tlsFirst, "tlsfirst", false, "begin TLS before the server greets: for a NATS server with "+
			"handshake_first")
		fs.StringVar(&c.InboxPrefix, "inbox-prefix", "", "`SUBJECT` under which replies arrive (default _INBOX)")
		fs.StringVar(&c.JSDomain, "js-domain", "", "JetStream `DOMAIN`")
	})
}

// RegisterClient adds the flags of a command that asks generators.
func (c *Conn) RegisterClient(fs *pflag.FlagSet) {
	c.Register(fs, GroupConnection, GroupConnection)
	Settings(fs, GroupConnection, func(fs *pflag.FlagSet) {
		fs.StringVar(&c.Context, "context", "",
			"use the NATS context `NAME` (default the selected one, unless --server is given)")
		annotate(fs.Lookup("context"), noteNATS, "NATS_CONTEXT")
	})
}

// OwnInboxes makes a command that does what a generator does get its answers where generators get
// theirs: keys of opaque tags may be in them.
func (c *Conn) OwnInboxes(fs *pflag.FlagSet) {
	c.ownInbox = wire.SubjectInbox
	f := fs.Lookup("inbox-prefix")
	f.Usage = strings.Replace(f.Usage, " (default _INBOX)", ", where no caller may read (default "+c.ownInbox+")", 1)
}

// Options returns what nats.Connect needs besides the server: a connection called name that, once
// made, comes back after every interruption. [Conn.FollowNkey] must be the last option.
func (c *Conn) Options(name string) ([]nats.Option, error) {
	for _, server := range SplitList(c.Server) { // an HTTP server would only close the connection after some time
		scheme, _, ok := strings.Cut(server, "://")
		known := slices.Contains([]string{"nats", "tls", "ws", "wss"}, strings.ToLower(scheme))
		if ok && !known && !strings.ContainsAny(scheme, ":@") {
			return nil, Usagef("--server %s: want nats://HOST:PORT (or tls://, ws://, wss://), not %s://",
				redact(server), scheme)
		}
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return nil, Usagef("--tlscert and --tlskey go together: give both")
	}
	opts := []nats.Option{
		nats.Name(name),
		nats.Timeout(c.Timeout),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		// A server or a network that hangs ends the connection within 3 s.
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(pingsOut),
		// A write that hangs holds the connection's lock, so meanwhile no ping can end the
		// connection.
		nats.FlusherTimeout(writeTimeout),
		nats.ReconnectOnFlusherError(),
	}
	opts, err := append(opts, c.identity()...), error(nil)
	// These options read files or check their value. They are tried here, so that the error names
	// the flag.
	check := func(flag string, opt nats.Option) {
		if bad := opt(&nats.Options{}); bad != nil && err == nil {
			err = Usagef("--%s: %w", flag, bad)
		}
		opts = append(opts, opt)
	}
	if c.nkey != "" {
		check("nkey", func(o *nats.Options) error { return followSeed(c.nkey, o) })
	}
	if c.creds != "" {
		check("creds", func(o *nats.Options) error { return useCreds(c.creds, o) })
	}
	if c.tlsCA != "" {
		check("tlsca", nats.RootCAs(c.tlsCA))
	}
	if c.tlsCert != "" {
		check("tlscert", nats.ClientCert(c.tlsCert, c.tlsKey))
	}
	if c.tlsFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if inbox := c.InboxPrefix + "."; c.InboxPrefix != "" {
		ours := strings.HasPrefix(inbox, wire.SubjectInbox+".")
		if inbox[0] == '$' || strings.HasPrefix(inbox, "leaf.") && !ours {
			return nil, Usagef("--inbox-prefix %s: generators send no answers there: take one that begins with "+
				"_INBOX", c.InboxPrefix)
		}
		check("inbox-prefix", nats.CustomInboxPrefix(c.InboxPrefix))
	}
	if c.ownInbox != "" {
		opts = append(opts, func(o *nats.Options) error {
			o.InboxPrefix = cmp.Or(o.InboxPrefix, c.ownInbox)
			return nil
		})
	}
	return opts, err
}

// reconnectDelay is the pause before a round of attempts to connect again. The first comes soon,
// because requests wait. All clients of a restarted server come back within two seconds, but not
// all at once.
func reconnectDelay(round int) time.Duration {
	if round <= 1 {
		return rand.N(100 * time.Millisecond)
	}
	return time.Second + rand.N(time.Second)
}

// Connect connects a client command, once, because a person waits. Server and credentials come from
// the flags. The NATS context has what the flags leave open. The default is a server on this
// machine. The selected context does not count if --server is given: its credentials are not for
// other servers.
func (c *Conn) Connect(cmd *cobra.Command) (*nats.Conn, error) {
	opts, err := c.Options(cmd.CommandPath())
	if err != nil {
		return nil, err
	}
	var servers []string
	first := func(o *nats.Options) error { // the options after it may fail
		if c.Server != "" {
			o.Servers = SplitList(c.Server)
		}
		if len(o.Servers) == 0 {
			o.Servers = []string{nats.DefaultURL}
		}
		servers = o.Servers
		return nil
	}
	opts = append(slices.Insert(opts, 0, first),
		nats.MaxReconnects(nats.DefaultMaxReconnect), // for a minute or two
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !errors.Is(err, nats.ErrPermissionViolation) { // the request returns that
				fmt.Fprintf(cmd.ErrOrStderr(), "leaf: NATS reports an error: %v\n", err)
			}
		}), c.FollowNkey)
	nc, err := installation.WhileSlow(func() (*nats.Conn, error) {
		if c.Server != "" && c.Context == "" {
			return nats.Connect(c.Server, opts...)
		}
		nc, settings, err := natscontext.Connect(c.Context, opts...)
		c.JSDomain = cmp.Or(c.JSDomain, settings.JSDomain)
		return nc, err
	})
	switch {
	case err == nil:
		return nc, nil
	case servers == nil && c.Context == "":
		return nil, fmt.Errorf("the selected NATS context: %w: choose another one with --context, or name a server "+
			"with --server", err)
	case servers == nil:
		return nil, Usagef("--context: %w: \"nats context ls\" lists the contexts", err)
	}
	return nil, ConnectError(strings.Join(servers, ","), err)
}

// JetStream returns the JetStream of the connection's domain.
func (c *Conn) JetStream(nc *nats.Conn) (js jetstream.JetStream, err error) {
	if c.JSDomain == "" {
		return jetstream.New(nc)
	}
	if js, err = jetstream.NewWithDomain(nc, c.JSDomain); err != nil {
		err = Usagef("--js-domain: %w", err)
	}
	return js, err
}

// ConnectError says what to do about err, which nats.Connect returned.
func ConnectError(servers string, err error) error {
	if tooOld, ok := errors.AsType[installation.TooOld](err); ok {
		return tooOld
	}
	at := redact(servers)
	_, badURL := errors.AsType[*url.Error](err)
	_, badCert := errors.AsType[*tls.CertificateVerificationError](err)
	dial, dialing := errors.AsType[*net.OpError](err)
	denials := []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired}
	switch {
	case badURL: // its text quotes the URL, and with it a password
		return Usagef("the address of the NATS server is not a URL: want nats://HOST:PORT")
	case errors.Is(err, nats.ErrNoServers):
		return Nobody{fmt.Errorf("no NATS server at %s: start one with `leaf serve`, or name yours with --server", at)}
	case slices.ContainsFunc(denials, func(denial error) bool { return errors.Is(err, denial) }):
		return fmt.Errorf("the NATS server at %s refused access: %w: check --user and --password, --token, --creds "+
			"or --nkey", at, err)
	case dialing && dial.Op == "dial": // the machine is down, or its name is wrong
		return Nobody{fmt.Errorf("no NATS server can be reached at %s: %w", at, err)}
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the server at %s closed the connection, so it is not NATS, or its TLS has handshake_first: "+
			"give the address of NATS, not of HTTP, with --server, or else --tlsfirst", at)
	case badCert:
		return fmt.Errorf("the NATS server at %s: %w: give the authority that signed its certificate with --tlsca",
			at, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the server at %s does not greet: %w: if its TLS has handshake_first, give --tlsfirst",
			at, err)
	}
	return fmt.Errorf("connect to NATS at %s: %w", at, err)
}

// redact returns servers for a message: without user, password and token.
func redact(servers string) string {
	shown := SplitList(servers)
	for i, server := range shown {
		scheme, rest, ok := strings.Cut(server, "://")
		if !ok {
			scheme, rest = "nats", server
		}
		shown[i] = scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
	}
	return strings.Join(shown, ", ")
}

// WithinProcess makes the connection one to a server in this process: TLS is not spoken there, and
// NATS_URL may be set for another one.
func (c *Conn) WithinProcess() {
	c.Server, c.tlsCA, c.tlsCert, c.tlsKey, c.tlsFirst = "", "", "", "", false
}
