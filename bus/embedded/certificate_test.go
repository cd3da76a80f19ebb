package embedded

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certify writes a certificate that has signed itself, and its key, and returns the lines of a configuration.
func certify(t *testing.T, from x509.Certificate) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	from.SerialNumber = big.NewInt(1)
	cert, err := x509.CreateCertificate(rand.Reader, &from, &from, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	lines := ""
	for kind, bytes := range map[string][]byte{"CERTIFICATE": cert, "PRIVATE KEY": secret} {
		file := filepath.Join(t.TempDir(), "pem")
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		lines += fmt.Sprintf("%s: %q, ", map[string]string{"CERTIFICATE": "cert_file", "PRIVATE KEY": "key_file"}[kind], file)
	}
	return "tls { " + lines + " }"
}

// A certificate that clients or other servers would refuse is found before a start.
func TestCheckCertificates(t *testing.T) {
	now := time.Now()
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	good := x509.Certificate{DNSNames: []string{"a", "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{server, client}}
	until := "valid until " + now.Add(time.Hour).UTC().Format(time.DateOnly) + " for a localhost 127.0.0.1"
	for name, c := range map[string]struct {
		change          func(*x509.Certificate)
		clients, routes string // what is found where the certificate is that of clients, or of routes
	}{
		"good":     {func(*x509.Certificate) {}, until, until},
		"ended":    {func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }, "has expired", "has expired"},
		"too new":  {func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }, "not yet valid", "not yet valid"},
		"no names": {func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, nil }, "subjectAltName", "subjectAltName"},
		"of b": {func(c *x509.Certificate) { c.DNSNames = []string{"b"} }, strings.Replace(until, "a localhost", "b", 1),
			"is for b 127.0.0.1, and no route"},
		"any use":  {func(c *x509.Certificate) { c.ExtKeyUsage = nil }, until, until},
		"server's": {func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, until, "clientAuth"},
		"client's": {func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }, "serverAuth", "serverAuth"},
	} {
		from := good
		c.change(&from)
		for where, want := range map[string]string{
			"%s": c.clients,
			`cluster { name: c, listen: "127.0.0.1:-1", routes: ["nats://a:1", "nats://c:1"], %s }`: c.routes,
		} {
			found, err := CheckCertificates(config(t, fmt.Sprintf(where, certify(t, from))), now)
			if (err == nil) != strings.HasPrefix(want, "valid until") || !strings.Contains(fmt.Sprint(found, err), want) {
				t.Errorf("%s: %s: %q, %v; want %q", name, where, found, err, want)
			}
		}
	}
	if found, err := CheckCertificates(config(t, ""), now); found != "" || err != nil {
		t.Errorf("without TLS: %q, %v", found, err)
	}
}
