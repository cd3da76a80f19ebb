package schema

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
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

// settings are those of every connection, whatever the DSN and the server's init_connect say:
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
		// Most errors of the driver quote what it took for an address or a value.
		return nil, errors.New("the DSN has an address or a parameter that cannot be read; want " +
			"user:password@tcp(host:3306)/database?parameter=value")
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
