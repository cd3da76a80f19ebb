package schema

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
)

// TLS names the files for TLS, as --tlsca, --tlscert and --tlskey do for NATS. With any of them
// connections use TLS.
type TLS struct{ CA, Cert, Key string }

// access makes connections with our settings. DSN and files are read again for each, so passwords
// and certificates can be changed without a restart. It refuses a read-only server: privileged
// accounts could write there, and ranges that they reserve on a replica would be reserved again on
// the primary. It refuses a database with another ID than the owner's row had: the address may lead
// elsewhere, and not for all generators at the same time.
type access struct {
	cfg   Config
	owner *atomic.Pointer[owner]

	last atomic.Pointer[target] // from what was read last and was right
}

// target is where connections lead.
type target struct {
	driver.Connector
	name string // of the database, with its address
}

// read reads the target of a DSN and of the files.
func (a *access) read(dsn string) error {
	cfg, err := parse(dsn, a.cfg.Log)
	if err == nil && a.cfg.TLS != (TLS{}) {
		err = a.cfg.TLS.secure(cfg)
	}
	if err != nil {
		return err
	}
	connector, err := mysql.NewConnector(cfg)
	if err == nil {
		a.last.Store(&target{connector, cfg.Addr + "/" + cfg.DBName})
	}
	return err
}

// again reads the DSN and the files again. What cannot be read or used counts as unchanged:
// somebody may be writing it.
func (a *access) again() *target {
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
	return a.last.Load()
}

// Name is the address and the name of the database.
func (d *Database) Name() string { return d.access.last.Load().name }

var errElsewhere = errors.New("the address leads to another database than the installation's (see leaf_installation)")

// Driver implements [driver.Connector].
func (*access) Driver() driver.Driver { return mysql.MySQLDriver{} }

// Connect implements [driver.Connector].
func (a *access) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := a.again().Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.prepare(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// prepare applies the settings to a new connection, and checks where it leads.
func (a *access) prepare(ctx context.Context, conn driver.Conn) error {
	for _, statement := range []string{
		settings,
		"ROLLBACK", // an init_connect may have begun a transaction, of which all later statements would be a part
		// A DSN could ask for dirty reads, or for a read-only session.
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",
	} {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, statement, nil); err != nil {
			return fmt.Errorf("the settings of the connection: %w", err)
		}
	}
	ask, want := askReadOnly, a.owner.Load()
	if want != nil {
		ask += ", (SELECT store FROM leaf_installation)"
	}
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, ask, nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	row := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(row); err != nil {
		return err
	}
	if err := writable(fmt.Sprintf("%s", row[0])); err != nil || want == nil {
		return err
	}
	if fmt.Sprintf("%s", row[1]) != want.Store { // or NULL: there is no row
		return errElsewhere
	}
	return nil
}

// askReadOnly asks the server whether it is read-only, as a text: numbers or words, by the version.
const askReadOnly = "SELECT CONCAT(@@global.read_only)"

// writable is errReadOnly unless the answer says that the server is not.
func writable(answer string) error {
	switch strings.ToUpper(answer) {
	case "0", "OFF":
		return nil
	}
	return errReadOnly
}

// secure makes connections use TLS with these files. tls=skip-verify in the DSN then means: check
// the authority, but not the host. Servers that made their certificate themselves need this,
// because it names no host.
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
