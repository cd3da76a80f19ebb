package faults

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// Tokens and the certificate are replaced without a restart: the old token is valid beside the new one until it is
// taken out of the file. A file that cannot be read changes nothing.
func TestSecretsOfHTTPRotate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	put(t, dir, "callers", "one\n")
	put(t, dir, "operators", "root")
	certify(t, dir)
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
	put(t, dir, "callers", "one\ntwo\n")
	await("one two root root")
	put(t, dir, "callers", "two\n")
	put(t, dir, "operators", "new\n")
	await("two new new")
	put(t, dir, "operators", "") // and what is in another file counts no more until this is set right
	put(t, dir, "callers", "one")
	_, before := ask("/healthz", "")
	certify(t, dir)
	testkit.Eventually(t, "the new certificate", func() bool { _, serial := ask("/healthz", ""); return serial != before })
	testkit.Eventually(t, "a warning", func() bool { return strings.Contains(g.Stderr(), "cannot be read again") })
	if got := opens(); got != "two new new" {
		t.Errorf("with an empty file %q are valid", got)
	}
	put(t, dir, "operators", "root")
	await("one root root")
}
