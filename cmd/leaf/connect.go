package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/installation"
)

const (
	connPingEvery    = time.Second     // how often a connection asks whether its server is alive
	connPingsOut     = 2               // how many of these questions may have no answer
	connWriteTimeout = 2 * time.Second // the longest write to a server
)

// connFlags say how to connect to NATS. Flags and variables are those of the
// nats CLI.
type connFlags struct {
	server string // URLs, separated by commas

	creds, nkey           string // files
	user, password, token string

	passwordFlag, tokenFlag *pflag.Flag // which know the files of these two

	tlsCA, tlsCert, tlsKey string // files
	tlsFirst               bool

	inboxPrefix string
	ownInbox    string // in place of _INBOX, where neither the flag nor the NATS context says more
	jsDomain    string
	timeout     time.Duration

	context string // name of a NATS context; clients only
}

func (c *connFlags) register(fs *pflag.FlagSet, title string) {
	fs.DurationVar(&c.timeout, "timeout", 5*time.Second, "longest wait for NATS")
	annotate(fs.Lookup("timeout"), noteNATS, "NATS_TIMEOUT")
	group(fs, title, "timeout")
	for _, f := range []struct {
		value                        *string
		name, short, variable, usage string
	}{
		{&c.server, "server", "s", "NATS_URL", "`URL` of the NATS server, or several with commas"},
		{&c.creds, "creds", "", "NATS_CREDS", "credentials `FILE` for NATS"},
		{&c.nkey, "nkey", "", "NATS_NKEY", "nkey seed `FILE` for NATS"},
		{&c.user, "user", "", "NATS_USER", "user `NAME` for NATS"},
		{&c.password, "password", "", "NATS_PASSWORD", "password for NATS"},
		{&c.token, "token", "", "NATS_TOKEN", "token for NATS"},
		{&c.tlsCA, "tlsca", "", "NATS_CA", "certificate authority `FILE` that signed the certificate of the NATS server"},
		{&c.tlsCert, "tlscert", "", "NATS_CERT", "client certificate `FILE` for NATS"},
		{&c.tlsKey, "tlskey", "", "NATS_KEY", "key `FILE` of the client certificate"},
		{&c.inboxPrefix, "inbox-prefix", "", "", "`SUBJECT` under which replies arrive (default _INBOX)"},
		{&c.jsDomain, "js-domain", "", "", "JetStream `DOMAIN`"},
	} {
		fs.StringVarP(f.value, f.name, f.short, "", f.usage)
		group(fs, title, f.name)
		if f.variable != "" {
			annotate(fs.Lookup(f.name), noteNATS, f.variable)
		}
	}
	fs.BoolVar(&c.tlsFirst, "tlsfirst", false, "begin TLS before the server greets: for a NATS server with handshake_first")
	group(fs, title, "tlsfirst")
	markSecret(fs, "server", "password", "token") // a URL may hold a password
	addSecretFile(fs, title, "password")
	addSecretFile(fs, title, "token")
	c.passwordFlag, c.tokenFlag = fs.Lookup("password"), fs.Lookup("token")
}

// registerClient adds the flags of a command that asks generators. A generator itself does not use
// NATS contexts: its installation must not depend on the context that someone has selected.
func (c *connFlags) registerClient(fs *pflag.FlagSet) {
	c.register(fs, groupConnection)
	fs.StringVar(&c.context, "context", "", "NATS context to use (default the selected one, unless --server is given)")
	annotate(fs.Lookup("context"), noteNATS, "NATS_CONTEXT")
	group(fs, groupConnection, "context")
}

// ownInboxes makes a command that does what a generator does get its answers where generators get theirs.
func (c *connFlags) ownInboxes(fs *pflag.FlagSet) {
	c.ownInbox = installation.InboxPrefix
	fs.Lookup("inbox-prefix").Usage = "`SUBJECT` under which replies arrive. No caller may read there (default " + c.ownInbox + ")"
}

// options returns what nats.Connect needs besides the server: a connection
// called name that, once made, comes back after every interruption.
func (c *connFlags) options(name string) ([]nats.Option, error) {
	if err := checkServers(splitList(c.server)); err != nil {
		return nil, err
	}
	if c.timeout <= 0 {
		return nil, usagef("--timeout must be above zero, not %v", c.timeout)
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return nil, usagef("--tlscert and --tlskey go together: give both")
	}
	opts := []nats.Option{
		nats.Name(name),
		nats.Timeout(c.timeout),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		// A server or a network that hangs ends the connection within 3 s.
		nats.PingInterval(connPingEvery),
		nats.MaxPingsOutstanding(connPingsOut),
		// A write that hangs holds the connection's lock, so meanwhile no ping can end the connection.
		nats.FlusherTimeout(connWriteTimeout),
		nats.ReconnectOnFlusherError(),
	}
	identity, err := c.identity()
	if err != nil {
		return nil, err
	}
	opts = append(opts, identity...)

	// These options read files or check their value. Try them here, so that the error names the flag.
	checked := func(flag string, opt nats.Option) {
		if e := opt(&nats.Options{}); e != nil && err == nil {
			err = usagef("--%s: %w", flag, e)
		}
		opts = append(opts, opt)
	}
	if c.tlsCA != "" {
		checked("tlsca", nats.RootCAs(c.tlsCA))
	}
	if c.tlsCert != "" {
		checked("tlscert", nats.ClientCert(c.tlsCert, c.tlsKey))
	}
	if c.tlsFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if c.inboxPrefix != "" {
		inbox := c.inboxPrefix + "."
		if inbox[0] == '$' || strings.HasPrefix(inbox, "leaf.") && !strings.HasPrefix(inbox, installation.InboxPrefix+".") {
			return nil, usagef("--inbox-prefix %s: generators send no answers there: take one that begins with _INBOX", c.inboxPrefix)
		}
		checked("inbox-prefix", nats.CustomInboxPrefix(c.inboxPrefix))
	}
	if c.ownInbox != "" {
		opts = append(opts, func(o *nats.Options) error { o.InboxPrefix = cmp.Or(o.InboxPrefix, c.ownInbox); return nil })
	}
	return opts, err
}

// reconnectDelay is the pause before a round of attempts to connect again. The first comes soon, because requests wait.
// All clients of a restarted server come back within two seconds, but not all at once.
func reconnectDelay(round int) time.Duration {
	if round <= 1 {
		return rand.N(100 * time.Millisecond)
	}
	return time.Second + rand.N(time.Second)
}

// checkServers refuses URLs of anything but NATS. An HTTP server, for example, would only close the
// connection after some time.
func checkServers(servers []string) error {
	for _, server := range servers {
		scheme, _, ok := strings.Cut(server, "://")
		if ok && !strings.ContainsAny(scheme, ":@") && !slices.Contains([]string{"nats", "tls", "ws", "wss"}, strings.ToLower(scheme)) {
			return usagef("--server %s: want nats://HOST:PORT (or tls://, ws://, wss://), not %s://", redact([]string{server}), scheme)
		}
	}
	return nil
}

// clientFlags are those of the commands that ask generators and print the answer.
type clientFlags struct {
	conn connFlags
	json bool
}

// command completes cmd: it connects and calls run, which asks and prints.
func (f *clientFlags) command(cmd *cobra.Command, run func(*cobra.Command, *admin.Client, []string) error) *cobra.Command {
	return f.complete(cmd, func(cmd *cobra.Command, args []string) error {
		return f.conn.withClient(cmd, func(c *admin.Client) error { return run(cmd, c, args) })
	})
}

// complete completes cmd with a run that connects by itself.
func (f *clientFlags) complete(cmd *cobra.Command, run func(*cobra.Command, []string) error) *cobra.Command {
	cmd.RunE = run
	cmd.Flags().BoolVar(&f.json, "json", false, "write JSON")
	group(cmd.Flags(), groupOutput, "json")
	f.conn.registerClient(cmd.Flags())
	return cmd
}

// withClient connects once, because a person waits, and calls f with a client whose calls wait for up
// to --timeout.
func (c *connFlags) withClient(cmd *cobra.Command, f func(*admin.Client) error) error {
	return c.withJetStream(cmd, func(client *admin.Client, _ jetstream.JetStream) error { return f(client) })
}

// withJetStream is withClient for commands that also read streams themselves.
func (c *connFlags) withJetStream(cmd *cobra.Command, f func(*admin.Client, jetstream.JetStream) error) error {
	return c.withConn(cmd, func(nc *nats.Conn, js jetstream.JetStream) error {
		return f(admin.NewClient(nc, admin.Timeout(c.timeout)), js)
	})
}

// withConn is withJetStream for commands that need no administrative client.
func (c *connFlags) withConn(cmd *cobra.Command, f func(*nats.Conn, jetstream.JetStream) error) error {
	nc, err := c.connectClient(cmd)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := c.jetStream(nc)
	if err != nil {
		return usagef("--js-domain: %w", err)
	}
	return f(nc, js)
}

// connectClient connects a client command, once. Server and credentials come from the flags. The NATS
// context has what the flags leave open. The default is a server on this machine. The selected context
// does not count if --server is given: its credentials are not for other servers.
func (c *connFlags) connectClient(cmd *cobra.Command) (*nats.Conn, error) {
	opts, err := c.options(cmd.CommandPath())
	if err != nil {
		return nil, err
	}
	var servers []string
	first := func(o *nats.Options) error { // the options after it may fail
		if c.server != "" {
			o.Servers = splitList(c.server)
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
		}), c.followNkey)

	var nc *nats.Conn
	if c.server != "" && c.context == "" {
		nc, err = installation.WhileSlow(func() (*nats.Conn, error) { return nats.Connect(c.server, opts...) })
	} else {
		var settings natscontext.Settings
		nc, err = installation.WhileSlow(func() (*nats.Conn, error) {
			nc, settings, err = natscontext.Connect(c.context, opts...)
			return nc, err
		})
		c.jsDomain = cmp.Or(c.jsDomain, settings.JSDomain)
	}
	switch {
	case err == nil:
		return nc, nil
	case servers == nil && c.context == "":
		return nil, fmt.Errorf("the selected NATS context: %w: choose another one with --context, or name a server with --server", err)
	case servers == nil:
		return nil, fmt.Errorf("--context: %w: \"nats context ls\" lists the contexts", err)
	default:
		return nil, connectError(servers, err)
	}
}

// jetStream returns the JetStream of the connection's domain.
func (c *connFlags) jetStream(nc *nats.Conn) (jetstream.JetStream, error) {
	if c.jsDomain == "" {
		return jetstream.New(nc)
	}
	return jetstream.NewWithDomain(nc, c.jsDomain)
}

// connectError says what to do about err, which nats.Connect returned.
func connectError(servers []string, err error) error {
	if tooOld, ok := errors.AsType[installation.TooOld](err); ok {
		return tooOld
	}
	at := redact(servers)
	_, badURL := errors.AsType[*url.Error](err)
	_, badCert := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case badURL:
		// Its text quotes the URL, and with it a password.
		return usagef("the address of the NATS server is not a URL: want nats://HOST:PORT")
	case errors.Is(err, nats.ErrNoServers):
		return nobodyError{fmt.Errorf("no NATS server at %s: start one with `leaf serve`, or name yours with --server", at)}
	case errors.Is(err, nats.ErrAuthorization),
		errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired):
		return fmt.Errorf("the NATS server at %s refused access: %w: check --user and --password, --token, --creds or --nkey", at, err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the server at %s closed the connection, so it is not NATS, or its TLS has handshake_first: "+
			"give the address of NATS, not of HTTP, with --server, or else --tlsfirst", at)
	case badCert:
		return fmt.Errorf("the NATS server at %s: %w: give the authority that signed its certificate with --tlsca", at, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the server at %s does not greet: %w: if its TLS has handshake_first, give --tlsfirst", at, err)
	default:
		return fmt.Errorf("connect to NATS at %s: %w", at, err)
	}
}

// redact returns servers for a message: without user, password and token.
func redact(servers []string) string {
	shown := make([]string, len(servers))
	for i, server := range servers {
		scheme, rest, ok := strings.Cut(server, "://")
		if !ok {
			scheme, rest = "nats", server
		}
		shown[i] = scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
	}
	return strings.Join(shown, ", ")
}

// wantsEmbedded decides whether a generator starts a NATS server of its own. The arguments are the
// sources of these flags. NATS_URL is meant for every program, so flags that are meant for leaf win.
func wantsEmbedded(server, listen, natsConfig source) (bool, error) {
	embed := listen != fromDefault || natsConfig != fromDefault
	switch server {
	case fromDefault:
		return true, nil
	case fromNATS:
		return embed, nil
	}
	if embed {
		return false, usagef("--server joins a running NATS, --listen and --nats-config start one: " +
			"give one or the other (flags, LEAF_ variables and the file count alike)")
	}
	return false, nil
}
