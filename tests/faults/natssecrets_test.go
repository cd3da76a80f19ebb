package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// What NATS demands of a generator is replaced without a restart of the generator: it connects again with what its
// files have then.
func TestSecretsOfNATSRotate(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		flags []string                                          // each %s is the folder of the secrets
		next  func(t *testing.T, dir string) (authorize string) // puts the next secrets there
	}{
		"a password": {[]string{"--user", "u", "--password-file", "%s/secret"}, func(t *testing.T, dir string) string {
			return fmt.Sprintf("authorization { user: u, password: %q }", put(t, dir, "secret", rand.Text()))
		}},
		"a token": {[]string{"--token-file", "%s/secret"}, func(t *testing.T, dir string) string {
			return fmt.Sprintf("authorization { token: %q }", put(t, dir, "secret", rand.Text()))
		}},
		"an nkey": {[]string{"--nkey", "%s/seed"}, func(t *testing.T, dir string) string {
			pair, err := nkeys.CreateUser()
			kit.Must(t, err)
			seed, err1 := pair.Seed()
			public, err2 := pair.PublicKey()
			kit.Must(t, errors.Join(err1, err2))
			put(t, dir, "seed", string(seed))
			return fmt.Sprintf("authorization { users: [ { nkey: %s } ] }", public)
		}},
		"certificates and TLS first": {[]string{"--tlsfirst", "--tlsca", "%s/cert", "--tlscert", "%s/cert", "--tlskey", "%s/key"},
			func(t *testing.T, dir string) string {
				certify(t, dir)
				return fmt.Sprintf("tls { cert_file: '%[1]s/cert', key_file: '%[1]s/key', ca_file: '%[1]s/cert', "+
					"verify: true, handshake_first: true }", dir)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, args := t.TempDir(), []string{}
			for _, flag := range row.flags {
				args = append(args, strings.ReplaceAll(flag, "%s", dir))
			}
			s := newNATS(t, row.next(t, dir))
			g := kit.Begin(t, t.TempDir(), append(args, "-s", s.ClientURL())...)
			for n := 1; n <= 2; n++ {
				s.configure(row.next(t, dir))
				testkit.Eventually(t, "it connects again", func() bool {
					return strings.Count(g.Stderr(), "connected to NATS again") >= n
				})
			}
		})
	}
}

// The NATS server in a generator demands the password that is in the file when a client connects.
func TestPasswordOfTheEmbeddedServerRotates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := put(t, dir, "secret", rand.Text())
	g := kit.Begin(t, t.TempDir(), "--listen", testkit.FreeAddress(t),
		"--user", "u", "--password-file", filepath.Join(dir, "secret"))
	old := kit.Connect(t, g.URL, nats.UserInfo("u", first))
	next := put(t, dir, "secret", rand.Text())
	if _, err := nats.Connect(g.URL, nats.UserInfo("u", first)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("with the old password: %v", err)
	}
	for _, wrong := range []nats.Option{
		nats.UserInfo("other", next), nats.UserInfo("u", ""), nats.Token(next), nats.Name("nobody"),
	} {
		if _, err := nats.Connect(g.URL, wrong); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("without user and password: %v", err)
		}
	}
	kit.LeafOK(t, "snowflake", "-s", g.URL, "--user", "u", "--password-file", filepath.Join(dir, "secret"))
	kit.Must(t, old.Flush()) // who is there stays
}

// put replaces a file in one step, and returns what is in it.
func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	kit.Must(t, errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)))
	return text
}

// certify puts a new certificate for 127.0.0.1 there, which signs itself, and its key.
func certify(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.Must(t, err)
	from := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, from, from, &key.PublicKey, key)
	kit.Must(t, err)
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	kit.Must(t, err)
	put(t, dir, "key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes})))
	put(t, dir, "cert", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
}
