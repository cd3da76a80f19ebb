package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout is below the time that a container's health check usually has.
const healthTimeout = 3 * time.Second

func newHealthCmd() *cobra.Command {
	var f httpFlags
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask whether the generator on this machine is alive, for containers",
		Long: `Ask the generator on this machine whether it is alive: its HTTP face for /healthz.
It takes the flags and variables that leaf serve has, and needs no token. It fails if no
generator answers, or if only a restart of the process helps. Use it as the health check
of an image without a shell and curl.`,
		Example: `  leaf health
  leaf health --http 127.0.0.1:8081`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.askHealth(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.addr, "http", defaultHTTP, "`ADDR` of the HTTP face")
	fs.StringVar(&f.tlsCert, "http-tlscert", "", "certificate `FILE` of the HTTP face: it serves TLS")
	return cmd
}

// askHealth asks for /healthz, where leaf serve listens with the same flags.
func (f *httpFlags) askHealth(cmd *cobra.Command) error {
	if f.addr == "" {
		return usagef("--http is empty, so the HTTP face is off, and nothing tells whether the generator is alive")
	}
	if err := checkAddress(f.addr); err != nil {
		return usagef("--http %q: %w", f.addr, err)
	}
	if _, port, _ := net.SplitHostPort(f.addr); port == "0" {
		return usagef("--http %q: it is not known which port that was: give the generator one of its own", f.addr)
	}
	url := "http://" + reachable(f.addr) + "/healthz"
	if f.tlsCert != "" {
		url = "https://" + reachable(f.addr) + "/healthz"
	}
	// No proxy is asked. The certificate is for the name that others know this
	// machine by; nothing secret is sent.
	client := http.Client{Timeout: healthTimeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no generator serves HTTP here: %w", err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}
