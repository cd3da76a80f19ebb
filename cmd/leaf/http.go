package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus/embedded"
)

// defaultHTTP is the default address of HTTP.
const defaultHTTP = "127.0.0.1:8080"

// httpFlags are the flags of HTTP.
type httpFlags struct {
	addr, token, adminToken string
	tlsCert, tlsKey         string // files
}

func (f *httpFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "http", defaultHTTP, "`ADDR` of HTTP: IDs, Leaf's API, dashboard, metrics, health; "+
		"port 0 is any free one, empty is off")
	fs.StringVar(&f.token, "http-token", "", "`TOKEN` that callers of HTTP must send, or two, one a line; "+
		"an address that other machines can reach needs this or TLS")
	fs.StringVar(&f.adminToken, "http-admin-token", "", "`TOKEN` of operators, or two, one a line; it opens everything. "+
		"Without it, dashboard and metrics are closed to other machines, and to all if there is --http-token")
	fs.StringVar(&f.tlsCert, "http-tlscert", "", "certificate `FILE` of HTTP")
	fs.StringVar(&f.tlsKey, "http-tlskey", "", "key `FILE` of that certificate")
	markSecret(fs, "http-token", "http-admin-token")
	group(fs, groupHTTP, "http", "http-token", "http-admin-token", "http-tlscert", "http-tlskey")
	addSecretFile(fs, groupHTTP, "http-token")
	addSecretFile(fs, groupHTTP, "http-admin-token")
}

// check refuses values that cannot work, or that would open HTTP to the network.
func (f *httpFlags) check() error {
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return usagef("--http-tlscert and --http-tlskey go together: give both")
	}
	if _, err := parseTokens(f.token, f.adminToken); err != nil {
		return usagef("%w", err)
	}
	if f.addr == "" {
		return nil
	}
	if err := checkAddress(f.addr); err != nil {
		return usagef("--http %q: %w; empty turns it off", f.addr, err)
	}
	host, _, _ := net.SplitHostPort(f.addr)
	if f.token == "" && f.tlsCert == "" && !embedded.IsLoopback(host) {
		return usagef("--http %s would be open to the network: give callers a token (--http-token-file), or serve TLS (--http-tlscert, --http-tlskey)", f.addr)
	}
	return nil
}

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
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	return listener, nil
}

// healthTimeout is below the time that a container's health check usually has.
const healthTimeout = 3 * time.Second

func newHealthCmd() *cobra.Command {
	var f httpFlags
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask whether the generator on this machine is alive, for containers",
		Long: `Ask the generator on this machine whether it is alive: GET /healthz over HTTP.
It takes the flags and variables that leaf serve has, and needs no token. The exit
status is 3 if no generator answers, and 1 if only a restart of the process helps. Use
it as the health check of an image without a shell and curl.`,
		Example: `  leaf health
  leaf health --http 127.0.0.1:8081`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.askHealth(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.addr, "http", defaultHTTP, "`ADDR` of HTTP")
	fs.StringVar(&f.tlsCert, "http-tlscert", "", "certificate `FILE` of HTTP, which then uses TLS")
	group(fs, groupOutput, "http", "http-tlscert")
	return cmd
}

// askHealth gets /healthz from the leaf serve that has the same flags.
func (f *httpFlags) askHealth(cmd *cobra.Command) error {
	if f.addr == "" {
		return usagef("--http is empty, so HTTP is off, and the generator cannot be asked whether it is alive")
	}
	if err := checkAddress(f.addr); err != nil {
		return usagef("--http %q: %w", f.addr, err)
	}
	if _, port, _ := net.SplitHostPort(f.addr); port == "0" {
		return usagef("--http %q: the port is not known: give the generator a fixed one", f.addr)
	}
	url := "http://" + reachable(f.addr) + "/healthz"
	if f.tlsCert != "" {
		url = "https://" + reachable(f.addr) + "/healthz"
	}
	// Without a proxy. The certificate names this machine as others know it, so it is not verified: the
	// request holds no secret.
	client := http.Client{Timeout: healthTimeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return nobodyError{fmt.Errorf("no generator serves HTTP here: %w", err)}
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}
