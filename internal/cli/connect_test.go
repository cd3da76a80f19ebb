package cli

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/internal/testkit"
)

// startNATS runs a NATS server on a free port.
func startNATS(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	return s
}

// freeAddress returns an address where nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	return "nats://" + testkit.FreeAddress(t)
}

// writeContext makes a NATS context, as the nats CLI would, and selects it.
func writeContext(t *testing.T, name string, selected bool, settings map[string]string) {
	t.Helper()
	text, err := json.Marshal(settings)
	base := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats")
	err = errors.Join(err, os.MkdirAll(filepath.Join(base, "context"), 0o700),
		os.WriteFile(filepath.Join(base, "context", name+".json"), text, 0o600))
	if selected {
		err = errors.Join(err, os.WriteFile(filepath.Join(base, "context.txt"), []byte(name), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// connect runs a client command that connects, and reports to which server. It says too in which domain of JetStream.
func connect(t *testing.T, args ...string) (url, domain string, status int, stderr string) {
	t.Helper()
	p := &probe{}
	p.do = func(cmd *cobra.Command) error {
		nc, err := p.conn.Connect(cmd)
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := p.conn.JetStream(nc)
		if err != nil {
			return err
		}
		url, domain = nc.ConnectedUrlRedacted(), js.Options().Domain
		return nil
	}
	status, _, stderr = runProbe(t, p, append([]string{"probe", "x"}, args...)...)
	return url, domain, status, stderr
}

func TestConnectRefusesBadFlags(t *testing.T) {
	cleanEnv(t)
	for want, args := range map[string][]string{
		"not a URL":      {"-s", "nats://alice:hunt/er2@127.0.0.1:4222"},
		"not http://":    {"-s", "nats://127.0.0.1:4222,http://alice:hunter2@127.0.0.1:8080"},
		"--timeout":      {"--timeout", "0s"},
		"--tlskey":       {"--tlscert", "cert.pem"},
		"--tlsca":        {"--tlsca", "/no/where.pem"},
		"--nkey":         {"--nkey", "/no/where.nk"},
		"--inbox-prefix": {"--inbox-prefix", "a.*"},
	} {
		_, _, status, stderr := connect(t, args...)
		if status != ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%v: status %d, stderr %q; want %d, %q", args, status, stderr, ExitUsage, want)
		}
		if strings.Contains(stderr, "hunt") {
			t.Errorf("stderr %q shows the password", stderr)
		}
	}
}

func TestConnectThroughContext(t *testing.T) {
	cleanEnv(t)
	open := startNATS(t, &server.Options{}).ClientURL()
	locked := startNATS(t, &server.Options{Username: "alice", Password: "hunter2"}).ClientURL()
	nothing := freeAddress(t)
	writeContext(t, "locked", true, map[string]string{"url": locked, "user": "alice", "password": "hunter2",
		"jetstream_domain": "hub"})
	writeContext(t, "open", false, map[string]string{"url": open})
	writeContext(t, "stale", false, map[string]string{"url": nothing, "user": "alice", "password": "old"})
	for name, c := range map[string]struct {
		args              []string
		url, domain, fail string
	}{
		"selected":                           {url: locked, domain: "hub"},
		"named":                              {args: []string{"--context", "open"}, url: open},
		"another domain":                     {args: []string{"--js-domain", "leaf"}, url: locked, domain: "leaf"},
		"server without context":             {args: []string{"-s", open}, url: open},
		"server leaves the selected context": {args: []string{"-s", locked}, fail: "refused access"},
		"server within a context":            {args: []string{"-s", locked, "--context", "locked"}, url: locked, domain: "hub"},
		"settings within a context":          {args: []string{"-s", locked, "--context", "stale", "--password", "hunter2"}, url: locked},
		"another user":                       {args: []string{"--user", "bob"}, fail: "refused access"},
		"nothing there":                      {args: []string{"--context", "stale"}, fail: "no NATS server at " + nothing},
		"unknown":                            {args: []string{"--context", "none"}, fail: `"none": "nats context ls" lists the contexts` + "\nRun"},
	} {
		url, domain, status, stderr := connect(t, c.args...)
		if url != c.url || domain != c.domain || (status != ExitOK) != (c.fail != "") ||
			!strings.Contains(stderr, c.fail) {
			t.Errorf("%s: connected to %q in %q, status %d, stderr %q; want %+v", name, url, domain, status, stderr, c)
		}
	}
}

// NATS is not there if nothing listens, if its machine does not answer in time, or if the name is unknown.
func TestConnectToNobody(t *testing.T) {
	cleanEnv(t)
	for name, args := range map[string][]string{
		"nothing listens": {"-s", freeAddress(t)},
		"no answer":       {"-s", freeAddress(t), "--timeout", "1ns"},
		"unknown name":    {"-s", "nobody.invalid", "--timeout", "100ms"},
	} {
		if _, _, status, stderr := connect(t, args...); status != ExitNobody || !strings.Contains(stderr, "no NATS server") {
			t.Errorf("%s: status %d, want %d: %s", name, status, ExitNobody, stderr)
		}
	}
}

func TestConnectWithTLS(t *testing.T) {
	cleanEnv(t)
	other := httptest.NewTLSServer(nil) // has a certificate for this machine
	t.Cleanup(other.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(&block), 0o600); err != nil {
		t.Fatal(err)
	}
	url := startNATS(t, &server.Options{TLSConfig: &tls.Config{Certificates: other.TLS.Certificates}}).ClientURL()
	if _, _, status, stderr := connect(t, "-s", url, "--tlsca", ca); status != ExitOK {
		t.Errorf("with --tlsca: status %d: %s", status, stderr)
	}
	_, _, status, stderr := connect(t, "-s", url)
	if status != ExitFailed || !strings.Contains(stderr, "with --tlsca") {
		t.Errorf("without --tlsca: status %d, stderr %q; want advice", status, stderr)
	}
	url = startNATS(t, &server.Options{TLSHandshakeFirst: true, TLSConfig: &tls.Config{Certificates: other.TLS.Certificates}}).ClientURL()
	if _, _, status, stderr := connect(t, "-s", url, "--tlsca", ca, "--tlsfirst"); status != ExitOK {
		t.Errorf("with --tlsfirst: status %d: %s", status, stderr)
	}
	_, _, status, stderr = connect(t, "-s", url, "--tlsca", ca, "--timeout", "500ms")
	if status != ExitFailed || !strings.Contains(stderr, "give --tlsfirst") {
		t.Errorf("without --tlsfirst: status %d, stderr %q; want advice", status, stderr)
	}
}
