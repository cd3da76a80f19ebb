package schema

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A silent database must be noticed before a refill or a client times out. A wait for a
// locked row is shorter (see settings), so it is not mistaken for silence.
const (
	dialTimeout = 3 * time.Second
	ioTimeout   = 3500 * time.Millisecond
	// maxConns bounds the connections of one generator, and so the refills that
	// are under way in the database at once.
	maxConns = 16
	// connLifetime is how long a connection is used: after a failover by DNS or
	// proxy none stays with a server that is no longer the primary.
	connLifetime = 3 * time.Minute
)

// settings are those of every connection, whatever the DSN and the server's
// init_connect say:
//   - without autocommit, or in a transaction that chains to the last one, the server
//     could roll back a range that was handed out;
//   - the SQL mode makes numbers that do not fit an error, and reads backslashes as
//     bun writes them;
//   - limits on rows would hide tags;
//   - a wait for a lock must end before the refill does;
//   - times are read in this time zone.
const settings = "SET autocommit = 1, completion_type = 0, unique_checks = 1, " +
	"sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_select_limit = 18446744073709551615, " +
	"sql_big_selects = 1, " +
	"innodb_lock_wait_timeout = 2, lock_wait_timeout = 2, time_zone = '+00:00', NAMES utf8mb4"

// parse reads a DSN as go-sql-driver/mysql has them, and forces what safety
// needs. Errors never quote the DSN: it has a password.
func parse(dsn string, log *slog.Logger) (*mysql.Config, error) {
	for _, scheme := range []string{"mysql://", "mariadb://", "jdbc:mysql:", "jdbc:mariadb:"} {
		if strings.HasPrefix(strings.ToLower(dsn), scheme) {
			return nil, errors.New("the DSN is a URL; want user:password@tcp(host:3306)/database")
		}
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		// Other errors of the driver quote what it took for an address or a value.
		if !strings.HasPrefix(err.Error(), "invalid DSN: ") {
			err = errors.New(unreadable(dsn))
		}
		return nil, fmt.Errorf("%w; want user:password@tcp(host:3306)/database", err)
	}
	for key, value := range cfg.Params { // the driver puts them into a SET unchanged
		for _, name := range []string{"sql_log_bin", "wsrep_on"} {
			if strings.Contains(strings.ToLower(key+" "+value), name) {
				return nil, fmt.Errorf("the DSN sets %s, which could keep ranges from replicas: they would be handed out "+
					"again after a failover", name)
			}
		}
	}
	if cfg.DBName == "" {
		return nil, errors.New("the DSN names no database; want user:password@tcp(host:3306)/database")
	}
	cfg.ClientFoundRows = false // the count of rows tells whether max_id was moved
	cfg.MultiStatements = false
	cfg.AllowAllFiles = false
	cfg.InterpolateParams = false // bun does
	cfg.ColumnsWithAlias = false
	cfg.RejectReadOnly = false // it would hide why
	cfg.CheckConnLiveness = true
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	// At level Debug: the error that follows says the same.
	cfg.Logger = slog.NewLogLogger(log.With("from", "the MySQL driver").Handler(), slog.LevelDebug)
	return cfg, cfg.Apply(mysql.Charset("utf8mb4", ""))
}

// driverParams are the parameters that the driver itself may find unreadable.
var driverParams = []string{
	"allowAllFiles", "allowCleartextPasswords", "allowFallbackToPlaintext", "allowNativePasswords", "allowOldPasswords",
	"checkConnLiveness", "clientFoundRows", "columnsWithAlias", "compress", "connectionAttributes", "interpolateParams",
	"loc", "maxAllowedPacket", "multiStatements", "parseTime", "readTimeout", "rejectReadOnly", "serverPubKey",
	"timeout", "timeTruncate", "tls", "writeTimeout",
}

// unreadable says what the driver cannot read of a DSN, without quoting a value.
func unreadable(dsn string) string {
	_, params, _ := strings.Cut(dsn[strings.LastIndex(dsn, "/")+1:], "?")
	for param := range strings.SplitSeq(params, "&") {
		name, _, _ := strings.Cut(param, "=")
		// Another name may be a part of a password.
		if _, err := mysql.ParseDSN("/?" + param); err != nil && slices.Contains(driverParams, name) {
			return "the DSN's parameter " + strconv.Quote(name) + " has a value that cannot be read"
		}
	}
	return "the DSN has an address or a parameter that cannot be read"
}

// connect returns a pool of connections. It makes none yet.
func connect(a *access, owner *atomic.Pointer[owner]) *sql.DB {
	db := sql.OpenDB(connector{a, owner})
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	db.SetConnMaxLifetime(connLifetime)
	return db
}

// connector makes connections with our settings. It refuses a read-only server:
// privileged accounts could write there, and ranges that they reserve on a replica would
// be reserved again on the primary. It refuses a database with another ID than the owner's row had:
// the address may lead elsewhere, and not for all generators at the same time.
type connector struct {
	*access
	owner *atomic.Pointer[owner]
}

var errElsewhere = errors.New("the address leads to another database than the installation's (see leaf_installation)")

// Driver implements [driver.Connector].
func (connector) Driver() driver.Driver { return mysql.MySQLDriver{} }

// Connect implements [driver.Connector].
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.again().Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// prepare applies the settings to a new connection, and checks where it leads.
func (c connector) prepare(ctx context.Context, conn driver.Conn) error {
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
	answer, err := text(ctx, conn, askReadOnly)
	if err == nil {
		err = writable(answer)
	}
	want := c.owner.Load()
	if err != nil || want == nil {
		return err
	}
	answer, err = text(ctx, conn, "SELECT store FROM leaf_installation")
	if err == io.EOF || err == nil && answer != want.Store {
		return errElsewhere
	}
	return err
}

// text asks a question whose answer is one text; [io.EOF]: there is no row.
func text(ctx context.Context, conn driver.Conn, question string) (string, error) {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, question, nil)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	row := make([]driver.Value, 1)
	if err := rows.Next(row); err != nil {
		return "", err
	}
	answer, _ := row[0].([]byte)
	return string(answer), rows.Close()
}

// askReadOnly asks the server whether it is read-only, as a text: numbers or
// words, by the version.
const askReadOnly = "SELECT CONCAT(@@global.read_only)"

// writable is errReadOnly unless the answer says that the server is not.
func writable(answer string) error {
	switch strings.ToUpper(answer) {
	case "0", "OFF":
		return nil
	}
	return errReadOnly
}
