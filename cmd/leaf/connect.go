package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"
)

// connFlags say how to connect to NATS. Flags and variables are those of the
// nats CLI.
type connFlags struct {
	server string // URLs, separated by commas

	creds, nkey           string // files
	user, password, token string

	tlsCA, tlsCert, tlsKey string // files

	inboxPrefix string
	jsDomain    string
	timeout     time.Duration

	context string // name of a NATS context; clients only
}

func (c *connFlags) register(fs *pflag.FlagSet) {
	fs.StringVarP(&c.server, "server", "s", "", "`URL` of the NATS server, or several with commas")
	fs.StringVar(&c.creds, "creds", "", "credentials `FILE` for NATS")
	fs.StringVar(&c.nkey, "nkey", "", "nkey seed `FILE` for NATS")
	fs.StringVar(&c.user, "user", "", "user `NAME` for NATS")
	fs.StringVar(&c.password, "password", "", "password for NATS")
	fs.StringVar(&c.token, "token", "", "token for NATS")
	fs.StringVar(&c.tlsCA, "tlsca", "", "certificate authority `FILE`, to know the NATS server by")
	fs.StringVar(&c.tlsCert, "tlscert", "", "client certificate `FILE` for NATS")
	fs.StringVar(&c.tlsKey, "tlskey", "", "key `FILE` of the client certificate")
	fs.StringVar(&c.inboxPrefix, "inbox-prefix", "", "`SUBJECT` under which replies arrive (default _INBOX)")
	fs.StringVar(&c.jsDomain, "js-domain", "", "JetStream `DOMAIN`")
	fs.DurationVar(&c.timeout, "timeout", 5*time.Second, "longest wait for NATS")

	for flag, variable := range map[string]string{
		"server":   "NATS_URL",
		"creds":    "NATS_CREDS",
		"nkey":     "NATS_NKEY",
		"user":     "NATS_USER",
		"password": "NATS_PASSWORD",
		"token":    "NATS_TOKEN",
		"tlsca":    "NATS_CA",
		"tlscert":  "NATS_CERT",
		"tlskey":   "NATS_KEY",
		"timeout":  "NATS_TIMEOUT",
	} {
		annotate(fs.Lookup(flag), noteNATS, variable)
	}
	markSecret(fs, "server", "password", "token") // a URL may hold a password
}

// registerContext is for clients. A generator does not use NATS contexts: which
// installation it belongs to must not depend on what someone has selected.
func (c *connFlags) registerContext(fs *pflag.FlagSet) {
	fs.StringVar(&c.context, "context", "", "NATS context to use (default the selected one, unless --server is given)")
	annotate(fs.Lookup("context"), noteNATS, "NATS_CONTEXT")
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
		// All clients of a server that restarts come back within two seconds,
		// but not all at once.
		nats.ReconnectWait(time.Second),
		nats.ReconnectJitter(time.Second, time.Second),
	}
	identity, err := c.identity()
	if err != nil {
		return nil, err
	}
	opts = append(opts, identity...)

	// These read files or check their value. Try them now, while it is known
	// which flag to blame.
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
	if c.inboxPrefix != "" {
		checked("inbox-prefix", nats.CustomInboxPrefix(c.inboxPrefix))
	}
	return opts, err
}

// checkServers refuses the URLs of anything but NATS: a server of HTTP, say, would
// only close the connection, and after some time.
func checkServers(servers []string) error {
	for _, server := range servers {
		scheme, _, ok := strings.Cut(server, "://")
		if ok && !strings.ContainsAny(scheme, ":@") && !slices.Contains([]string{"nats", "tls", "ws", "wss"}, strings.ToLower(scheme)) {
			return usagef("--server %s: want nats://HOST:PORT (or tls://, ws://, wss://), not %s://", redact([]string{server}), scheme)
		}
	}
	return nil
}

// identity returns the options that say who connects. Whoever is named here
// takes the place of the one in a NATS context, whose credentials would be sent
// along otherwise; a password alone is for the user in the context.
func (c *connFlags) identity() ([]nats.Option, error) {
	var opts []nats.Option
	if c.user != "" || c.token != "" || c.creds != "" || c.nkey != "" {
		opts = append(opts, func(o *nats.Options) error {
			o.User, o.Password, o.Token = "", "", ""
			o.Nkey, o.UserJWT, o.SignatureCB = "", nil, nil
			return nil
		})
	}
	if c.user != "" {
		opts = append(opts, nats.UserInfo(c.user, c.password))
	} else if c.password != "" {
		opts = append(opts, func(o *nats.Options) error {
			o.Password = c.password
			return nil
		})
	}
	if c.token != "" {
		opts = append(opts, nats.Token(c.token))
	}
	if c.creds != "" {
		opts = append(opts, nats.UserCredentials(c.creds))
	}
	if c.nkey != "" {
		seed, err := nats.NkeyOptionFromSeed(c.nkey)
		if err != nil {
			return nil, usagef("--nkey: %w", err)
		}
		opts = append(opts, seed)
	}
	return opts, nil
}

// connectClient connects a client command, once: a person waits for the answer.
// It takes the server and credentials that flags name, those of the NATS
// context for what they leave open, and else a server on this machine. The
// selected context does not count when a server is named: its credentials are
// not for any other.
func (c *connFlags) connectClient(cmd *cobra.Command) (*nats.Conn, error) {
	opts, err := c.options(cmd.CommandPath())
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		nats.MaxReconnects(nats.DefaultMaxReconnect), // for a minute or two
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !errors.Is(err, nats.ErrPermissionViolation) { // of that the request tells
				fmt.Fprintf(cmd.ErrOrStderr(), "leaf: NATS reports an error: %v\n", err)
			}
		}))

	// First of the options, because those after it may fail.
	var servers []string
	opts = append([]nats.Option{func(o *nats.Options) error {
		if c.server != "" {
			o.Servers = splitList(c.server)
		}
		if len(o.Servers) == 0 {
			o.Servers = []string{nats.DefaultURL}
		}
		servers = o.Servers
		return nil
	}}, opts...)

	var nc *nats.Conn
	if c.server != "" && c.context == "" {
		nc, err = nats.Connect(c.server, opts...)
	} else {
		var settings natscontext.Settings
		nc, settings, err = natscontext.Connect(c.context, opts...)
		if c.jsDomain == "" {
			c.jsDomain = settings.JSDomain
		}
	}
	switch {
	case err == nil:
		return nc, nil
	case servers == nil && c.context == "":
		return nil, fmt.Errorf("the selected NATS context: %w: choose one with --context, or name a server with --server", err)
	case servers == nil:
		return nil, fmt.Errorf("--context: %w: \"nats context ls\" lists those there are", err)
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
	at := redact(servers)
	_, badURL := errors.AsType[*url.Error](err)
	_, badCert := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case badURL:
		// Its text quotes the URL, and with it a password.
		return usagef("the address of the NATS server is not a URL: want nats://HOST:PORT")
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("no NATS server at %s: start one with `leaf serve`, or name yours with --server", at)
	case errors.Is(err, nats.ErrAuthorization),
		errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired):
		return fmt.Errorf("the NATS server at %s refused access: %w: check --user and --password, --token, --creds or --nkey", at, err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("what listens at %s closed the connection, as no NATS server does: name NATS's address, not that of HTTP, with --server", at)
	case badCert:
		return fmt.Errorf("the NATS server at %s: %w: name the authority that it is certified by with --tlsca", at, err)
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

// wantsEmbedded decides whether a generator runs a NATS server of its own, from
// where its flags --server, --listen and --nats-config were given. NATS_URL is
// meant for every program, so it gives way to flags that are meant for leaf.
func wantsEmbedded(server, listen, natsConfig source) (bool, error) {
	embed := listen != fromDefault || natsConfig != fromDefault
	switch server {
	case fromDefault:
		return true, nil
	case fromNATS:
		return embed, nil
	}
	if embed {
		return false, usagef("--server joins a NATS that is there, --listen and --nats-config start one: " +
			"give one or the other (flags, LEAF_ variables and the file count alike)")
	}
	return false, nil
}
