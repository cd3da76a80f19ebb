package schema

import (
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/go-sql-driver/mysql"
)

// TLS names the files for TLS, as --tlsca, --tlscert and --tlskey do for NATS. With any of them connections use TLS.
type TLS struct{ CA, Cert, Key string }

// access is how the database is reached. DSN and files are read again for each new connection, so passwords and
// certificates can be changed without a restart.
type access struct {
	cfg Config

	mu   sync.Mutex
	last driver.Connector // from what was read last and was right
	name string           // of the database
}

func newAccess(cfg Config) (*access, error) {
	a := &access{cfg: cfg}
	return a, a.read(cfg.DSN)
}

// read makes the connector of a DSN and of the files.
func (a *access) read(dsn string) error {
	cfg, err := parse(dsn, a.cfg.Log)
	if err != nil {
		return err
	}
	if a.cfg.TLS != (TLS{}) {
		if err := a.cfg.TLS.secure(cfg); err != nil {
			return err
		}
	}
	last, err := mysql.NewConnector(cfg)
	if err == nil {
		a.last, a.name = last, cfg.Addr+"/"+cfg.DBName
	}
	return err
}

// again reads the DSN and the files again. What cannot be read or used counts as unchanged: somebody may be writing it.
func (a *access) again() driver.Connector {
	a.mu.Lock()
	defer a.mu.Unlock()
	dsn, err := a.cfg.DSN, error(nil)
	if a.cfg.Reread != nil {
		dsn, err = a.cfg.Reread()
	}
	if err == nil {
		err = a.read(dsn)
	}
	if err != nil {
		a.cfg.Log.Warn("the DSN or the certificates of MySQL cannot be read again; those that were read last are used",
			"error", err)
	}
	return a.last
}

// Name is the address and the name of the database.
func (d *Database) Name() string {
	d.access.mu.Lock()
	defer d.access.mu.Unlock()
	return d.access.name
}

// secure makes connections use TLS with these files. tls=skip-verify in the DSN then means: check the authority, but
// not the host. Servers that made their certificate themselves need this, because it names no host.
func (t TLS) secure(cfg *mysql.Config) error {
	to := &tls.Config{InsecureSkipVerify: cfg.TLSConfig == "skip-verify"}
	switch {
	case (t.Cert == "") != (t.Key == ""):
		return errors.New("--mysql-tlscert and --mysql-tlskey go together: give both")
	case cfg.AllowFallbackToPlaintext || cfg.TLSConfig == "false":
		return errors.New("the DSN allows connections without TLS, and the flags --mysql-tls... demand it: leave one " +
			"of the two out")
	}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return fmt.Errorf("--mysql-tlsca: %w", err)
		}
		if to.RootCAs = x509.NewCertPool(); !to.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("--mysql-tlsca: %s has no certificate in PEM", t.CA)
		}
		if to.InsecureSkipVerify {
			to.VerifyConnection = func(s tls.ConnectionState) error { return verifyAuthority(s.PeerCertificates, to.RootCAs) }
		}
	}
	if t.Cert != "" {
		cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return fmt.Errorf("--mysql-tlscert and --mysql-tlskey: %w", err)
		}
		to.Certificates = []tls.Certificate{cert}
	}
	cfg.TLS = to
	return nil
}

// verifyAuthority checks who signed a server's certificate, whatever host it names.
func verifyAuthority(certs []*x509.Certificate, roots *x509.CertPool) error {
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
	if err != nil {
		err = &tls.CertificateVerificationError{UnverifiedCertificates: certs, Err: err}
	}
	return err
}
