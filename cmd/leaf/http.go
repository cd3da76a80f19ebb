package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/gateway"
	"github.com/leafbus/leafbus/internal/cli"
)

// mostTokens is how many tokens of a kind are valid at a time: the old one and the new one.
const mostTokens = 2

// httpFlags are the flags of HTTP.
type httpFlags struct {
	addr, token, adminToken                     string
	tlsCert, tlsKey, callersFile, operatorsFile string
}

func (f *httpFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "http", defaultHTTP, "`ADDR` of HTTP: IDs, dashboard, metrics, health; empty is off")
	fs.StringVar(&f.token, "http-token", "", "`TOKEN` that callers of HTTP must send, or two, one a line")
	fs.StringVar(&f.adminToken, "http-admin-token", "", "`TOKEN` of operators, or two, one a line: it opens everything")
	fs.StringVar(&f.tlsCert, "http-tlscert", "", "certificate `FILE` of HTTP")
	fs.StringVar(&f.tlsKey, "http-tlskey", "", "key `FILE` of that certificate")
	cli.SecretFile(fs, "http-token", &f.callersFile)
	cli.SecretFile(fs, "http-admin-token", &f.operatorsFile)
}

// check refuses values that cannot work, or that would open HTTP to the network.
func (f *httpFlags) check() error {
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return cli.Usagef("--http-tlscert and --http-tlskey go together: give both")
	}
	if f.addr == "" {
		return nil
	}
	if err := checkAddress(f.addr); err != nil {
		return cli.Usagef("--http %q: %w; empty turns it off", f.addr, err)
	}
	host, _, _ := net.SplitHostPort(f.addr)
	if f.token == "" && f.tlsCert == "" && !embedded.IsLoopback(host) {
		return cli.Usagef("--http %s would be open to the network: give callers a token (--http-token-file), or "+
			"serve TLS (--http-tlscert, --http-tlskey)", f.addr)
	}
	return nil
}

// listen opens the port of HTTP. Nothing answers there yet. A nil listener: HTTP is off.
func (f *httpFlags) listen() (net.Listener, error) {
	if f.addr == "" {
		return nil, nil
	}
	network := "tcp"
	if host, _, err := net.SplitHostPort(f.addr); err == nil && net.ParseIP(host).To4() != nil {
		network = "tcp4" // "tcp" would listen at [::] too if the host is 0.0.0.0
	}
	listener, err := net.Listen(network, f.addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--http: %w. With your other flags:\n  leaf serve --http 127.0.0.1:0    at any free "+
			"port\n"+
			"  leaf serve --http ''             without HTTP", err)
	case err != nil:
		return nil, fmt.Errorf("--http: %w", err)
	}
	return listener, nil
}

// tokens reads the tokens of callers and of operators, from their files if they have some.
func (f *httpFlags) tokens() (t gateway.Tokens, err error) {
	if t.Callers, err = splitTokens("http-token", f.callersFile, f.token); err != nil {
		return t, err
	}
	if t.Operators, err = splitTokens("http-admin-token", f.operatorsFile, f.adminToken); err != nil {
		return t, err
	}
	if slices.ContainsFunc(t.Operators, func(token string) bool { return slices.Contains(t.Callers, token) }) {
		return t, errors.New("--http-token and --http-admin-token have the same token, " +
			"which would open the dashboard to callers: give operators another one")
	}
	return t, nil
}

// splitTokens reads the tokens of a flag, one a line.
func splitTokens(flag, file, text string) (tokens []string, err error) {
	if read := cli.Reread(file); read != nil {
		if text, err = read(); err != nil {
			return nil, fmt.Errorf("--%s-file: %w", flag, err)
		}
	}
	if text == "" {
		return nil, nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		token := strings.TrimRightFunc(line, unicode.IsSpace)
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("--%s: an HTTP header cannot carry it: want ASCII without white space", flag)
		}
		tokens = append(tokens, token)
	}
	if len(tokens) > mostTokens {
		return nil, fmt.Errorf("--%s has %d lines: want one token, or the old and the new one", flag, len(tokens))
	}
	return tokens, nil
}

// certificate reads the certificate of HTTP; nil: no TLS.
func (f *httpFlags) certificate() (*tls.Certificate, error) {
	if f.tlsCert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
	if err != nil {
		err = fmt.Errorf("--http-tlscert, --http-tlskey: %w", err)
	}
	return &cert, err
}

// The default addresses of a generator.
const (
	defaultListen = "127.0.0.1:4222" // of the embedded NATS server
	defaultHTTP   = "127.0.0.1:8080"
)

// checkAddress returns an error if addr is not an address to listen at.
func checkAddress(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("want HOST:PORT")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("want HOST:PORT, the port from 0, any free one, to 65535")
	}
	return nil
}

// reachable is how this machine reaches a listener at the address.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
