package schema

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// Numbers of server errors that have a meaning in several places.
const (
	errNoColumn  = 1054
	errDuplicate = 1062
	errNoDefault = 1364
	errDenied    = 1142
	errLockWait  = 1205
	errOption    = 1290 // --read-only
)

var errReadOnly = errors.New("the MySQL server is read-only: is it a replica, or in the middle of a failover? " +
	"Name the primary, or switch read_only off")

// number is the number of a server's error; 0: the error is no server's.
func number(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// undone reports whether the server says that it did nothing, and that the same
// statement may succeed when it is repeated.
func undone(err error) bool {
	switch number(err) {
	case 1020, errLockWait, 1213, 3101: // a snapshot too old (MariaDB), a lock, a deadlock, a commit (Group Replication)
		return true
	}
	return false
}

// explain turns an error of the database into one of the allocator's, if it is not one already. It
// notes for [Database.Err] that the database is unavailable or was refused. What the server has
// undone of a statement about one tag is no outage.
func (d *Database) explain(ctx context.Context, tag string, err error) error {
	switch {
	case tag != "" && number(err) == errLockWait:
		return fmt.Errorf("%w: in MySQL a transaction holds the row of %s in %s, or the table (SHOW ENGINE INNODB "+
			"STATUS names it): %w",
			allocator.ErrLocked, tag, d.cfg.Table, err)
	case tag != "" && undone(err):
		return fmt.Errorf("%w: %w", allocator.ErrConflict, err)
	}
	err = d.meaning(ctx, err)
	if errors.Is(err, allocator.ErrRefused) && d.fit.Load() != nil || // before it is open it may be repaired
		errors.Is(err, allocator.ErrUnavailable) && !errors.Is(d.Err(), allocator.ErrRefused) {
		d.away.Store(&err)
	}
	return err
}

func (d *Database) meaning(ctx context.Context, err error) error {
	for _, known := range []error{
		allocator.ErrUnknownTag, allocator.ErrExists, allocator.ErrConflict, allocator.ErrExhausted,
		allocator.ErrDamaged, idspace.ErrBadValue, allocator.ErrRefused, allocator.ErrUnavailable,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	switch number(err) {
	case 1264, 1366, errNoDefault, 1406: // a number, a text's character set, a column without a default, a long text
		return fmt.Errorf("%w: it does not fit the columns of %s: %w", idspace.ErrBadValue, d.cfg.Table, err)
	case errOption, 1792, 1836, 1874: // the server, a transaction, a mode, the engine
		err = fmt.Errorf("%w: %w", errReadOnly, err)
	}
	if !errors.Is(err, context.Canceled) {
		// New connections may lead to a server that works. The old ones would stay with one that is
		// gone, that is no longer the primary, or that left its cluster (1047, 1053, 3100).
		d.renew()
	}
	what := "MySQL"
	switch {
	case errors.Is(err, context.DeadlineExceeded): // of ctx, or of a dial that ends a little earlier
		what = "MySQL did not answer in time"
	case errors.Is(err, mysql.ErrInvalidConn): // its own text says nothing
		what = "the connection to MySQL broke, or nothing came from it in time"
	}
	return fmt.Errorf("%w: %s (%s): %w", allocator.ErrUnavailable, what, d.Name(), withAdvice(err))
}

// forbidden is the error of a change that the database forbids to this account, or for this tag:
// that is no outage.
func forbidden(err error) error {
	switch number(err) {
	case errDenied, 1143, 1906, 3105, 3819, 4025: // a table, a column, a generated column, a constraint
		return fmt.Errorf("%w: the database does not allow it: %w", idspace.ErrBadValue, err)
	case 1451:
		return fmt.Errorf("%w: another table refers to the tag: %w", allocator.ErrConflict, err)
	}
	return err
}

// advice says what an operator does about errors that stay until then, by their numbers.
var advice = map[uint16]string{
	1044: adviceRights, errDenied: adviceRights, 1143: adviceRights, 1227: adviceRights,
	1045: adviceLogin, 1130: adviceLogin, 1251: adviceLogin, 1524: adviceLogin, 1698: adviceLogin,
	1049:        "create the database (CREATE DATABASE), or fix its name in the DSN",
	errNoColumn: "the table was made by hand or by another version: compare it with `leaf migrate --print`",
	1820:        advicePassword, 1862: advicePassword,
	3118: adviceLocked, 4151: adviceLocked, // MySQL, MariaDB
	3159: "the server demands TLS: add tls=true to the DSN, or give --mysql-tlsca",
}

const (
	adviceRights = "give the account SELECT, INSERT, UPDATE and DELETE on the tables, and CREATE once, or let " +
		"`leaf migrate` create them with another account"
	adviceLogin = "check the user and the password in the DSN, from which hosts the account may come, and " +
		"whether it must use TLS"
	advicePassword = "the password of the account has expired: ALTER USER ... IDENTIFIED BY ..."
	adviceLocked   = "the account is locked: ALTER USER ... ACCOUNT UNLOCK"
)

// withAdvice makes an error that stays until an operator acts match [allocator.ErrMisconfigured],
// and say what to do.
func withAdvice(err error) error {
	what := advice[number(err)]
	_, authority := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case authority:
		what = "name the authority that signed the server's certificate with --mysql-tlsca (docs/stores.md)"
	case errors.Is(err, mysql.ErrNoTLS):
		what = "switch TLS on in the server, or leave it out of the DSN"
	case errors.Is(err, mysql.ErrCleartextPassword), errors.Is(err, mysql.ErrNativePassword),
		errors.Is(err, mysql.ErrOldPassword), errors.Is(err, mysql.ErrUnknownPlugin), errors.Is(err, mysql.ErrOldProtocol):
		what = "let the account log in in another way"
	}
	if what == "" {
		return err
	}
	return fmt.Errorf("%w: %w: %s", err, allocator.ErrMisconfigured, what)
}
