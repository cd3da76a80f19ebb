package tests

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

func TestRefusedHTTP(t *testing.T) {
	t.Parallel()
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "none.pem")
	writeFile(t, cert, "no certificate")
	for name, c := range map[string]struct {
		args   []string
		status int
		stderr []string
	}{
		"open to the network": {[]string{"--http", "0.0.0.0:0"}, 2, []string{"--http-token", "--http-tlscert"}},
		"every interface":     {[]string{"--http", ":0"}, 2, []string{"open to the network"}},
		"a name":              {[]string{"--http", "example.invalid:80"}, 2, []string{"open to the network"}},
		"no port":             {[]string{"--http", "127.0.0.1"}, 2, []string{"HOST:PORT"}},
		"port by name":        {[]string{"--http", "127.0.0.1:http"}, 2, []string{"65535"}},
		"port too large":      {[]string{"--http", "127.0.0.1:65536"}, 2, []string{"65535"}},
		"certificate alone":   {[]string{"--http", "127.0.0.1:0", "--http-tlscert", cert}, 2, []string{"--http-tlskey"}},
		"bad certificate":     {[]string{"--http", "127.0.0.1:0", "--http-tlscert", cert, "--http-tlskey", key}, 2, []string{"--http-tlscert", "none.pem"}},
		"no such address":     {[]string{"--http", "192.0.2.1:0", "--http-token", "hunter2"}, 1, []string{"--http", "192.0.2.1"}},
	} {
		r := leaf(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...)...)
		r.want(t, c.status, c.stderr...)
		if r.stdout != "" || strings.Contains(r.stderr, "hunter2") {
			t.Errorf("%s: stdout %q, stderr %q", name, r.stdout, r.stderr)
		}
	}
}

// With a token the face may be open to the network; the token is shown nowhere.
func TestHTTPToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := ready(t, dir, start(t, command(t, dir, []string{"LEAF_HTTP_TOKEN=hunter2"}, []string{"serve", "--listen", "127.0.0.1:0", "--tag", "order", "--http", "0.0.0.0:0"})))
	if !strings.HasPrefix(g.http, "http://0.0.0.0:") {
		t.Errorf("it says that it is at %s", g.http)
	}
	at := "http://127.0.0.1" + g.http[strings.LastIndex(g.http, ":"):]
	if p := fetch(t, "GET", at+"/api/segment/get/order"); p.status != 401 || p.header.Get("WWW-Authenticate") == "" {
		t.Errorf("without the token: %+v", p)
	}
	if p := fetch(t, "GET", at+"/api/segment/get/order", "Authorization", "Bearer hunter2"); p.status != 200 || p.body != "1" {
		t.Errorf("with the token: %+v", p)
	}
	answer, err := http.Get(strings.Replace(at, "http://", "http://leaf:hunter2@", 1) + "/metrics")
	must(t, err)
	metrics, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	must(t, err)
	if answer.StatusCode != 200 {
		t.Errorf("with the token in the URL: %d", answer.StatusCode)
	}
	if p := fetch(t, "GET", at+"/readyz"); p.status != 200 {
		t.Errorf("health: %+v", p)
	}
	feed := ""
	testkit.Eventually(t, "the event of the start", func() bool {
		feed = fetch(t, "GET", at+"/dashboard/feed", "Authorization", "Bearer hunter2").body
		return strings.Contains(feed, "leaf.node.started")
	})
	if strings.Contains(string(metrics)+g.stdout.String()+g.stderr.String()+feed, "hunter2") {
		t.Error("the token is shown")
	}
}

func TestHTTPOverTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, pool := certificate(t)
	g := withHTTP(t, "--tag", "order", "--http-tlscert", certFile, "--http-tlskey", keyFile)
	if !strings.HasPrefix(g.http, "https://127.0.0.1:") {
		t.Fatal(g.http)
	}
	for protocol, by := range map[string]*http.Transport{
		"HTTP/1.1": {TLSClientConfig: &tls.Config{RootCAs: pool}},
		"HTTP/2.0": {TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true},
	} {
		t.Cleanup(by.CloseIdleConnections)
		r, err := http.NewRequest("GET", g.http+"/api/segment/get/order", nil)
		must(t, err)
		answer, err := by.RoundTrip(r)
		must(t, err)
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != 200 || answer.Proto != protocol || len(body) == 0 {
			t.Errorf("%s: %d %s %q", protocol, answer.StatusCode, answer.Proto, body)
		}
	}
	old := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}}
	r, err := http.NewRequest("GET", g.http+"/healthz", nil)
	must(t, err)
	if answer, err := old.RoundTrip(r); err == nil {
		answer.Body.Close()
		t.Error("TLS 1.1 is spoken")
	}
	if p := fetch(t, "GET", strings.Replace(g.http, "https://", "http://", 1)+"/healthz"); p.status != 400 {
		t.Errorf("without TLS: %+v", p)
	}
}

// certificate writes one for 127.0.0.1, and returns who vouches for it.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(nil) // which has one
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	must(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeFile(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
	writeFile(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	pool = x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return certFile, keyFile, pool
}
