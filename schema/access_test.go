package schema

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestPasswordChanges reads the DSN again for each connection. A DSN that cannot be read, or is none, changes nothing.
func TestPasswordChanges(t *testing.T) {
	t.Parallel()
	root := kit.NewDatabase(t)
	dsn := account(t, root, "ALL")
	file, err := dsn, error(nil)
	var log notes
	s := prepare(t, dsn, &log, func(cfg *Config) { cfg.Reread = func() (string, error) { return file, err } })
	if err := s.Open(within(t)); err != nil {
		t.Fatal(err)
	}
	insert(t, s, "order", 1, 10)
	user := ""
	edit(t, dsn, func(cfg *mysql.Config) { user = cfg.User })
	execute(t, root, "ALTER USER "+user+"@'%' IDENTIFIED BY 'another'")
	s.renew()
	if _, _, err := s.Advance(within(t), "order", 1, 10, 1); !errors.Is(err, allocator.ErrMisconfigured) {
		t.Errorf("Advance with the old password: %v", err)
	}
	file = edit(t, dsn, func(cfg *mysql.Config) { cfg.Passwd = "another" })
	advance(t, s, "order", 1, 1)
	for _, broken := range []func(){func() { file = "half of it" }, func() { err = errors.New("no such file") }} {
		s.renew()
		broken()
		advance(t, s, "order", 1, 1)
	}
	if strings.Count(log.String(), "cannot be read again") != 2 || strings.Contains(log.String(), "another") {
		t.Errorf("the log has %s", log.String())
	}
}

// TestNobodyLetIn: what stays until an operator acts is no outage, and says what to do.
func TestNobodyLetIn(t *testing.T) {
	t.Parallel()
	root := kit.NewDatabase(t)
	dsn := account(t, root, "SELECT")
	user := ""
	edit(t, dsn, func(cfg *mysql.Config) { user = cfg.User })
	elsewhere := func(database string) string { return edit(t, dsn, func(cfg *mysql.Config) { cfg.DBName = database }) }
	for _, c := range []struct{ before, dsn, says string }{
		{"DO 0", dsn, "CREATE command denied"},                                                         // 1142
		{"DO 0", strings.Replace(dsn, "secret", "wrong", 1), "check the user and the password"},        // 1045
		{"DO 0", elsewhere("mysql"), "give the account"},                                               // 1044
		{"DO 0", elsewhere("mysql") + "?sql_log_off=1", "give the account"},                            // 1044, 1227
		{"DO 0", edit(t, root, func(cfg *mysql.Config) { cfg.DBName = "nowhere" }), "CREATE DATABASE"}, // 1049
		{"DO 0", dsn + "?tls=true", "TLS"},
		{"ALTER USER " + user + " REQUIRE SSL", dsn, "TLS"}, // 1045
		{"ALTER USER " + user + " REQUIRE NONE ACCOUNT LOCK", dsn, "ACCOUNT UNLOCK"},
		{"ALTER USER " + user + " ACCOUNT UNLOCK PASSWORD EXPIRE", dsn, "has expired"},
	} {
		execute(t, root, c.before)
		err := prepare(t, c.dsn, io.Discard).Open(within(t))
		if !errors.Is(err, allocator.ErrMisconfigured) || !errors.Is(err, allocator.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, %s: %v", c.before, c.says, err)
		}
	}
	execute(t, root, "CREATE TABLE leaf_installation (id int, store int)")
	if err := prepare(t, root, io.Discard).Open(within(t)); !errors.Is(err, allocator.ErrMisconfigured) || !strings.Contains(err.Error(), "leaf migrate --print") {
		t.Errorf("tables of another version: %v", err)
	}
	// An outage is none of these.
	err := prepare(t, "root@tcp("+kit.NewLink(t, "127.0.0.1:1").Addr()+")/leaf", io.Discard).Open(within(t))
	if err == nil || errors.Is(err, allocator.ErrMisconfigured) {
		t.Errorf("a server that is not there: %v", err)
	}
}

// TestTLS has a server with a private authority, which demands certificates of its clients.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	ca := newAuthority(t, at("ca"))
	ca.sign(t, at("server"), "127.0.0.1")
	ca.sign(t, at("client"), "")
	newAuthority(t, at("other")).sign(t, at("stranger"), "")
	server := kit.NewMariaDB(t, "--ssl-ca="+at("ca.pem"), "--ssl-cert="+at("server.pem"), "--ssl-key="+at("server.key"))
	root, err := server.Database()
	if err != nil {
		t.Fatal(err)
	}
	dsn := account(t, root, "ALL")
	edit(t, dsn, func(cfg *mysql.Config) { execute(t, root, "ALTER USER "+cfg.User+"@'%' REQUIRE X509") })
	localhost := strings.Replace(dsn, "127.0.0.1", "localhost", 1)
	all := TLS{at("ca.pem"), at("client.pem"), at("client.key")}
	for _, c := range []struct {
		what, dsn string
		tls       TLS
		says      string // empty: it opens
	}{
		{"all", dsn, all, ""},
		{"tls=true", dsn + "?tls=true", all, ""},
		{"another name", localhost, all, "--mysql-tlsca"},
		{"another name, unchecked", localhost + "?tls=skip-verify", all, ""},
		{"no authority", dsn + "?tls=true", TLS{}, "--mysql-tlsca"},
		{"another authority", dsn, TLS{at("other.pem"), all.Cert, all.Key}, "--mysql-tlsca"},
		{"another authority, another name", localhost + "?tls=skip-verify", TLS{at("other.pem"), all.Cert, all.Key}, "--mysql-tlsca"},
		{"no certificate", dsn, TLS{CA: all.CA}, "check the user"},
	} {
		err := prepare(t, c.dsn, io.Discard, func(cfg *Config) { cfg.TLS = c.tls }).Open(within(t))
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, allocator.ErrMisconfigured) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	for what, cfg := range map[string]Config{
		"no key":       {DSN: dsn, TLS: TLS{all.CA, all.Cert, ""}},
		"no file":      {DSN: dsn, TLS: TLS{CA: at("none.pem")}},
		"no authority": {DSN: dsn, TLS: TLS{CA: at("client.key")}},
		"other key":    {DSN: dsn, TLS: TLS{all.CA, all.Cert, at("server.key")}},
		"tls=false":    {DSN: dsn + "?tls=false", TLS: all},
		"preferred":    {DSN: dsn + "?tls=preferred", TLS: all},
		"fallback":     {DSN: dsn + "?allowFallbackToPlaintext=true", TLS: all},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
	// A certificate counts from the next connection on. One that has no key yet does not count.
	s := newDatabase(t, dsn, func(cfg *Config) { cfg.TLS = all })
	insert(t, s, "order", 1, 10)
	replace := func(name, by string) {
		if err := os.Rename(at(by), at(name)); err != nil {
			t.Fatal(err)
		}
		s.renew()
	}
	replace("client.pem", "stranger.pem")
	advance(t, s, "order", 1, 1)
	replace("client.key", "stranger.key")
	if r, _, err := s.Advance(within(t), "order", 1, 10, 1); err == nil {
		t.Errorf("with a stranger's certificate: %v", r)
	}
	ca.sign(t, at("client"), "")
	advance(t, s, "order", 1, 1)
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority writes the certificate of a new authority to a file.
func newAuthority(t *testing.T, path string) authority {
	t.Helper()
	a := authority{cert: &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}}
	a.key = write509(t, path, a.cert, a)
	return a
}

// sign writes a certificate and its key to files; ip is what a server's is for.
func (a authority) sign(t *testing.T, path, ip string) {
	t.Helper()
	cert := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if ip != "" {
		cert.IPAddresses = []net.IP{net.ParseIP(ip)}
	}
	write509(t, path, cert, a)
}

func write509(t *testing.T, path string, cert *x509.Certificate, by authority) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by.key == nil {
		by.key = key
	}
	cert.SerialNumber, cert.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: filepath.Base(path)}
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signed, err := x509.CreateCertificate(rand.Reader, cert, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: signed}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path+name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return key
}

// account returns the DSN for a new account that has these rights on the database.
func account(tb testing.TB, dsn, rights string) string {
	tb.Helper()
	return edit(tb, dsn, func(cfg *mysql.Config) {
		user := "u" + cfg.DBName[len(cfg.DBName)-12:]
		execute(tb, dsn, "CREATE USER "+user+"@'%' IDENTIFIED BY 'secret'", "GRANT "+rights+" ON "+cfg.DBName+".* TO "+user+"@'%'")
		tb.Cleanup(func() { execute(tb, dsn, "DROP USER "+user+"@'%'") })
		cfg.User, cfg.Passwd = user, "secret"
	})
}
