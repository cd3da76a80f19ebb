package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/internal/cli"
)

// healthTimeout is below the time that a container's health check usually has.
const healthTimeout = 3 * time.Second

func newHealthCmd() *cobra.Command {
	var addr, cert string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask whether the generator on this machine is alive, for containers",
		Long: `Ask the generator on this machine whether it is alive: GET /healthz over HTTP.
It takes the flags and variables that leaf serve has, and needs no token. The exit
status is 3 if no generator answers, and 1 if only a restart of the process helps.`,
		Example: `  leaf health
  leaf health --http 127.0.0.1:8081`,
		RunE: func(cmd *cobra.Command, _ []string) error { return askHealth(cmd, addr, cert != "") },
	}
	cli.Settings(cmd.Flags(), cli.GroupCommand, func(fs *pflag.FlagSet) {
		fs.StringVar(&addr, "http", defaultHTTP, "`ADDR` of HTTP")
		fs.StringVar(&cert, "http-tlscert", "", "certificate `FILE` of HTTP, which then uses TLS")
	})
	return cmd
}

// askHealth gets /healthz from the leaf serve that has the same flags.
func askHealth(cmd *cobra.Command, addr string, withTLS bool) error {
	if addr == "" {
		return cli.Usagef("--http is empty, so HTTP is off, and the generator cannot be asked whether it is alive")
	}
	if err := checkAddress(addr); err != nil {
		return cli.Usagef("--http %q: %w", addr, err)
	}
	if _, port, _ := net.SplitHostPort(addr); port == "0" {
		return cli.Usagef("--http %q: the port is not known: give the generator a fixed one", addr)
	}
	url := "http://" + reachable(addr) + "/healthz"
	if withTLS {
		url = "https://" + reachable(addr) + "/healthz"
	}
	// Without a proxy. The certificate names this machine as others know it, so it is not verified:
	// the request holds no secret.
	client := http.Client{Timeout: healthTimeout,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return cli.Nobody{Err: fmt.Errorf("no generator serves HTTP here: %w", err)}
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}
