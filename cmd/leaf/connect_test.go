package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
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
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats")
	if err := os.MkdirAll(filepath.Join(base, "context"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "context", name+".json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if selected {
		if err := os.WriteFile(filepath.Join(base, "context.txt"), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// connect runs a client command that connects, and reports to which server.
func connect(t *testing.T, args ...string) (url string, status int, stderr string) {
	t.Helper()
	p := &probe{}
	p.do = func(cmd *cobra.Command) error {
		nc, err := p.conn.connectClient(cmd)
		if err != nil {
			return err
		}
		defer nc.Close()
		url = nc.ConnectedUrlRedacted()
		return nil
	}
	status, _, stderr = runProbe(t, p, append([]string{"probe", "x"}, args...)...)
	return url, status, stderr
}

func TestConnectWithPassword(t *testing.T) {
	cleanEnv(t)
	url := startNATS(t, &server.Options{Username: "alice", Password: "hunter2"}).ClientURL()
	host := strings.TrimPrefix(url, "nats://")

	tests := []struct {
		name string
		args []string
		fail string
	}{
		{name: "right", args: []string{"-s", url, "--user", "alice", "--password", "hunter2"}},
		{name: "right, in the URL", args: []string{"-s", "nats://alice:hunter2@" + host}},
		{name: "wrong", args: []string{"-s", url, "--user", "alice", "--password", "hunter22"}, fail: "refused access"},
		{name: "wrong, in the URL", args: []string{"-s", "alice:hunter22@" + host}, fail: "refused access"},
		{name: "wrong token, in the URL", args: []string{"-s", "nats://hunter22@" + host}, fail: "refused access"},
		{name: "none", args: []string{"-s", url}, fail: "--user and --password"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, status, stderr := connect(t, tt.args...)
			if failed := status != exitOK; failed != (tt.fail != "") || !strings.Contains(stderr, tt.fail) {
				t.Errorf("status %d, stderr %q; want %q", status, stderr, tt.fail)
			}
			if strings.Contains(stderr, "hunter2") {
				t.Errorf("stderr %q shows the password", stderr)
			}
		})
	}
}

func TestConnectWhereNothingListens(t *testing.T) {
	cleanEnv(t)
	address := freeAddress(t)
	_, status, stderr := connect(t, "-s", address)
	want := "leaf: no NATS server at " + address + ": start one with `leaf serve`, or name yours with --server\n"
	if status != exitNobody || stderr != want {
		t.Errorf("status %d, stderr %q; want %d, %q", status, stderr, exitNobody, want)
	}
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
		_, status, stderr := connect(t, args...)
		if status != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%v: status %d, stderr %q; want %d, %q", args, status, stderr, exitUsage, want)
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
	writeContext(t, "locked", true, map[string]string{"url": locked, "user": "alice", "password": "hunter2"})
	writeContext(t, "open", false, map[string]string{"url": open})
	writeContext(t, "stale", false, map[string]string{"url": nothing, "user": "alice", "password": "old"})

	tests := []struct {
		name string
		args []string
		url  string
		fail string
	}{
		{name: "selected", url: locked},
		{name: "named", args: []string{"--context", "open"}, url: open},
		{name: "server without context", args: []string{"-s", open}, url: open},
		{name: "server leaves the selected context", args: []string{"-s", locked}, fail: "refused access"},
		{name: "server within a context", args: []string{"-s", locked, "--context", "locked"}, url: locked},
		{name: "settings within a context", args: []string{"-s", locked, "--context", "stale", "--password", "hunter2"}, url: locked},
		{name: "another user", args: []string{"--user", "bob"}, fail: "refused access"},
		{name: "nothing there", args: []string{"--context", "stale"}, fail: "no NATS server at " + nothing},
		{name: "unknown", args: []string{"--context", "none"}, fail: `unknown context "none"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url, status, stderr := connect(t, tt.args...)
			if url != tt.url || (status != exitOK) != (tt.fail != "") || !strings.Contains(stderr, tt.fail) {
				t.Errorf("connected to %q, status %d, stderr %q; want %q, %q", url, status, stderr, tt.url, tt.fail)
			}
		})
	}
}

func TestConnectWithTLS(t *testing.T) {
	cleanEnv(t)
	cert, ca := certificate(t)
	url := startNATS(t, &server.Options{TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}).ClientURL()
	if _, status, stderr := connect(t, "-s", url, "--tlsca", ca); status != exitOK {
		t.Errorf("with --tlsca: status %d: %s", status, stderr)
	}
	_, status, stderr := connect(t, "-s", url)
	if status != exitFailed || !strings.Contains(stderr, "with --tlsca") {
		t.Errorf("without --tlsca: status %d, stderr %q; want advice", status, stderr)
	}
}

// certificate returns a certificate for this machine, and the file of its authority.
func certificate(t *testing.T) (cert tls.Certificate, ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca
}

func TestJetStreamDomain(t *testing.T) {
	cleanEnv(t)
	s := startNATS(t, &server.Options{JetStream: true, JetStreamDomain: "hub", StoreDir: t.TempDir()})
	writeContext(t, "hub", true, map[string]string{"url": s.ClientURL(), "jetstream_domain": "hub"})
	writeContext(t, "elsewhere", false, map[string]string{"url": s.ClientURL(), "jetstream_domain": "elsewhere"})

	account := func(args ...string) error {
		var found error
		p := &probe{}
		p.do = func(cmd *cobra.Command) error {
			nc, err := p.conn.connectClient(cmd)
			if err != nil {
				return err
			}
			defer nc.Close()
			js, err := p.conn.jetStream(nc)
			if err != nil {
				return err
			}
			_, found = js.AccountInfo(cmd.Context())
			return nil
		}
		if status, _, stderr := runProbe(t, p, append([]string{"probe", "x"}, args...)...); status != exitOK {
			t.Fatalf("%v: status %d: %s", args, status, stderr)
		}
		return found
	}
	if err := account(); err != nil {
		t.Errorf("in the context's domain: %v", err)
	}
	if err := account("--context", "elsewhere", "--js-domain", "hub"); err != nil {
		t.Errorf("in the flag's domain: %v", err)
	}
	if err := account("--context", "elsewhere"); err == nil {
		t.Error("in a domain that is not there: no error")
	}
}

func TestRedact(t *testing.T) {
	got := redact([]string{"nats://127.0.0.1:4222", "alice:hunter2@a", "tls://tok@b:1", "ws://u:p/w@c/path"})
	if want := "nats://127.0.0.1:4222, nats://a, tls://b:1, ws://c/path"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWantsEmbedded(t *testing.T) {
	tests := []struct {
		name                       string
		server, listen, natsConfig source
		want, usage                bool
	}{
		{name: "nothing given", want: true},
		{name: "listen", listen: fromFlag, want: true},
		{name: "NATS configuration from the file", natsConfig: fromFile, want: true},
		{name: "server by flag", server: fromFlag},
		{name: "server by LEAF_", server: fromEnv},
		{name: "server by file", server: fromFile},
		{name: "NATS_URL", server: fromNATS},
		{name: "NATS_URL and listen", server: fromNATS, listen: fromFlag, want: true},
		{name: "NATS_URL and listen in the file", server: fromNATS, listen: fromFile, want: true},
		{name: "NATS_URL and a NATS configuration", server: fromNATS, natsConfig: fromEnv, want: true},
		{name: "server and listen", server: fromFlag, listen: fromFlag, usage: true},
		{name: "server and listen in LEAF_", server: fromFlag, listen: fromEnv, usage: true},
		{name: "server in the file and NATS configuration", server: fromFile, natsConfig: fromFlag, usage: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := wantsEmbedded(tt.server, tt.listen, tt.natsConfig)
			_, usage := errors.AsType[*usageError](err)
			if got != tt.want || usage != tt.usage || (err != nil) != tt.usage {
				t.Errorf("got %v, %v; want %v, usage error %v", got, err, tt.want, tt.usage)
			}
		})
	}
}
