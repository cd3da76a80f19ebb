package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// Tokens and the certificate are replaced without a restart: the old token is valid beside the new one until it is
// taken out of the file. A file that cannot be read changes nothing.
func TestSecretsOfHTTPRotate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) {
		t.Helper()
		kit.Must(t, os.WriteFile(file(name)+".new", []byte(text), 0o600))
		kit.Must(t, os.Rename(file(name)+".new", file(name)))
	}
	certify := func(serial int64) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		kit.Must(t, err)
		from := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
		cert, err := x509.CreateCertificate(rand.Reader, from, from, &key.PublicKey, key)
		kit.Must(t, err)
		bytes, err := x509.MarshalPKCS8PrivateKey(key)
		kit.Must(t, err)
		put("key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes})))
		put("cert", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	}
	put("callers", "one\n")
	put("operators", "root")
	certify(1)
	g := kit.Embed(t, "--tag", "order", "--http", "127.0.0.1:0", "--http-token-file", file("callers"),
		"--http-admin-token-file", file("operators"), "--http-tlscert", file("cert"), "--http-tlskey", file("key"))
	// Each request has a connection of its own, and so sees the certificate.
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	ask := func(path, token string) (status int, serial int64) {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, g.HTTP+path, nil)
		kit.Must(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(r)
		kit.Must(t, err)
		answer.Body.Close()
		return answer.StatusCode, answer.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	// opens lists the tokens that open the paths of IDs, and those that open the dashboard.
	opens := func() string {
		var found []string
		for _, path := range []string{"/v1/snowflakes", "/"} {
			for _, token := range []string{"one", "two", "root", "new"} {
				if status, _ := ask(path, token); status == http.StatusOK {
					found = append(found, token)
				}
			}
		}
		return strings.Join(found, " ")
	}
	await := func(want string) {
		t.Helper()
		testkit.Eventually(t, want, func() bool { return opens() == want })
	}
	await("one root root")
	put("callers", "one\ntwo\n")
	await("one two root root")
	put("callers", "two\n")
	put("operators", "new\n")
	await("two new new")
	put("operators", "") // and what is in another file counts no more until this is set right
	put("callers", "one")
	certify(2)
	testkit.Eventually(t, "the new certificate", func() bool { _, serial := ask("/healthz", ""); return serial == 2 })
	testkit.Eventually(t, "a warning", func() bool { return strings.Contains(g.Stderr(), "cannot be read again") })
	if got := opens(); got != "two new new" {
		t.Errorf("with an empty file %q are valid", got)
	}
	put("operators", "root")
	await("one root root")
}
