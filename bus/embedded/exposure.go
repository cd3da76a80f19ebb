package embedded

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// ErrOpenToNetwork is returned by [Start] when a listener for clients or leaf
// nodes is not on a loopback address and asks for no authentication: everybody who
// reaches it could read, use up and delete every ID range.
var ErrOpenToNetwork = errors.New("refusing to serve the network without authentication")

// checkExposure returns ErrOpenToNetwork for the first listener that is open.
// anonymous: the server accepts clients without credentials. It does not check what the
// configuration file says about links between servers, monitoring and no_auth_user.
func checkExposure(opts *server.Options, anonymous bool) error {
	demands := hasCredentials(opts) && !anonymous
	ws, mqtt, leaf := &opts.Websocket, &opts.MQTT, &opts.LeafNode
	for _, l := range []struct {
		name    string
		host    string
		port    int
		enabled bool
		guarded bool
	}{
		{"client", opts.Host, opts.Port, true,
			demands || mutualTLS(opts.TLSConfig) && !opts.AllowNonTLS},
		{"websocket", ws.Host, ws.Port, ws.Port != 0,
			demands || ws.Username != "" || ws.Token != "" || mutualTLS(ws.TLSConfig)},
		{"mqtt", mqtt.Host, mqtt.Port, mqtt.Port != 0,
			demands || mqtt.Username != "" || mqtt.Token != "" || mutualTLS(mqtt.TLSConfig)},
		{"leafnodes", leaf.Host, leaf.Port, leaf.Port != 0,
			demands || leaf.Username != "" || leaf.Nkey != "" || len(leaf.Users) > 0 || mutualTLS(leaf.TLSConfig)},
	} {
		if l.enabled && !l.guarded && !IsLoopback(l.host) {
			return fmt.Errorf("%w (%s listener on %s): use --user and --password-file, or --token, "+
				"or authorization in the file of --nats-config, or listen on 127.0.0.1",
				ErrOpenToNetwork, l.name, net.JoinHostPort(l.host, strconv.Itoa(l.port)))
		}
	}
	return nil
}

// hasCredentials reports whether clients need credentials, by nats-server's own rule.
func hasCredentials(opts *server.Options) bool {
	return opts.CustomClientAuthentication != nil || opts.Username != "" || opts.Authorization != "" ||
		len(opts.Users) > 0 || len(opts.Nkeys) > 0 ||
		len(opts.TrustedOperators) > 0 || len(opts.TrustedKeys) > 0
}

func mutualTLS(c *tls.Config) bool {
	return c != nil && c.ClientAuth == tls.RequireAndVerifyClientCert
}

// IsLoopback reports whether only this machine reaches a host. It resolves no
// names: "localhost" is the only one known to be local.
func IsLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
