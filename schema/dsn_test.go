package schema

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/tests/kit"
)

// hostile are parameters of a DSN that would make IDs repeat, or the store
// misread what the database says, were they not overruled. Those of a line go
// together.
var hostile = []string{
	"autocommit=0&timeout=0&readTimeout=0&writeTimeout=0",
	"Autocommit=0&autocommit=false&sql_mode=''",
	"completion_type=1&group_concat_max_len=4",
	"completion_type=2&sql_mode='NO_BACKSLASH_ESCAPES'",
	"sql_mode='ORACLE'&unique_checks=0&group_concat_max_len=7",
	"sql_mode='ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH'&sql_select_limit=1&innodb_lock_wait_timeout=1000&readTimeout=1000h",
	"clientFoundRows=true&multiStatements=true&allowAllFiles=true&columnsWithAlias=true",
	"interpolateParams=true&rejectReadOnly=true&checkConnLiveness=false",
	"parseTime=false&time_zone='%2B08:00'",
	"loc=Asia%2FShanghai&parseTime=true&timeTruncate=24h&collation=utf8mb4_bin",
	"loc=Asia%2FShanghai&charset=latin1&insert_id=4711&last_insert_id=4711",
	"charset=latin1,utf8&collation=latin1_swedish_ci&tx_isolation='SERIALIZABLE'",
	"character_set_client=latin1&character_set_connection=latin1&character_set_results=latin1&tx_isolation='READ-UNCOMMITTED'",
	"sql_big_selects=0&max_join_size=1",
	"character_set_results=NULL&sql_safe_updates=1&sql_auto_is_null=1&lock_wait_timeout=1",
	"tx_read_only=1",
}

func TestHostileDSN(t *testing.T) {
	t.Parallel()
	for _, params := range hostile {
		t.Run(params, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
			behaves(t, dsn, dsn+"?"+params)
		})
	}
}

// behaves checks what settings of a connection can spoil. The plain DSN sees
// only what is committed.
func behaves(t *testing.T, plain, dsn string) {
	t.Helper()
	s := newDatabase(t, dsn)
	insert(t, s, "order", 1, 10)
	if r := advance(t, s, "order", 1, 1); r.First != 1 || r.Last != 10 || maxID(t, plain, "order") != 11 {
		t.Errorf("after Advance returned %v another connection sees max_id %d", r, maxID(t, plain, "order"))
	}
	// It holds no lock either.
	execute(t, plain, "SET innodb_lock_wait_timeout = 1", "UPDATE leaf_alloc SET step = 20")
	if r := advance(t, s, "order", 1, 1); r.First != 11 || r.Last != 30 {
		t.Errorf("after the step was changed: %v", r)
	}

	step, text := int64(1)<<40, `täglich \ 'x' "y" ?alloc 日本 🍃`
	wantError(t, "Raise with a step that does not fit", s.Raise(within(t), "order", 1, &step, nil), idspace.ErrBadValue)
	if step := ask[int64](t, plain, "SELECT step FROM leaf_alloc"); step != 20 {
		t.Errorf("a step that does not fit became %d", step)
	}
	if err := s.Raise(within(t), "order", 1, nil, &text); err != nil {
		t.Errorf("Raise: %v", err)
	}
	if got := ask[string](t, plain+"?charset=utf8mb4", "SELECT description FROM leaf_alloc"); got != text {
		t.Errorf("the description became %s", got)
	}
	for _, tag := range []string{"a", "b", "c"} {
		row := allocator.Row{Name: tag, MaxID: 1, Step: 10, Description: text + "?0 ? ?name ?alloc -- %s"}
		if err := s.Add(within(t), row); err != nil {
			t.Errorf("Add: %v", err)
		}
		wantRow(t, s, row)
	}
	if tags, unfit := served(t, s); tags != 4 || len(unfit) > 0 {
		t.Errorf("Rows: %d, %v", tags, unfit)
	}
	var got string
	if err := s.pool.QueryRow("SELECT CONCAT_WS(' ', @@autocommit + 0, @@completion_type, @@unique_checks + 0, @@sql_mode, @@sql_select_limit," +
		" @@innodb_lock_wait_timeout, @@time_zone, @@character_set_client, @@character_set_connection, @@character_set_results)").Scan(&got); err != nil {
		t.Fatal(err)
	}
	if want := "1 NO_CHAIN 1 STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION 18446744073709551615 2 +00:00 utf8mb4 utf8mb4 utf8mb4"; got != want {
		t.Errorf("the connection has %s, want %s", got, want)
	}
	if _, err := s.pool.Exec("SELECT 1; SELECT 2"); err == nil {
		t.Errorf("the connection takes several statements at once")
	}
}

// TestForced looks at what the driver is told, also where no server shows it.
func TestForced(t *testing.T) {
	for _, params := range append(hostile, "") {
		var log notes
		cfg, err := parse("user:secret@tcp(db:3306)/leaf?"+params, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		if err != nil {
			t.Errorf("%s: %v", params, err)
			continue
		}
		if cfg.ClientFoundRows || cfg.MultiStatements || cfg.AllowAllFiles || cfg.InterpolateParams || cfg.ColumnsWithAlias || cfg.RejectReadOnly ||
			!cfg.CheckConnLiveness || !cfg.ParseTime || cfg.Loc != time.UTC ||
			cfg.Timeout != dialTimeout || cfg.ReadTimeout != ioTimeout || cfg.WriteTimeout != ioTimeout {
			t.Errorf("%s is not overruled: %+v", params, cfg)
		}
		if cfg.Logger.Print("closing"); !strings.Contains(log.String(), "level=DEBUG msg=closing from=") {
			t.Errorf("the driver does not write to our log: %q", log.String())
		}
	}
	if cfg, err := parse("user:secret@tcp(db)/leaf", slog.Default()); err != nil || cfg.User != "user" || cfg.Passwd != "secret" || cfg.Addr != "db:3306" || cfg.DBName != "leaf" {
		t.Errorf("%+v, %v", cfg, err)
	}
}

// TestBadDSN is told what to write, but not its own password.
func TestBadDSN(t *testing.T) {
	for _, dsn := range []string{
		"", "/", "user:s3cret@tcp(db:3306)/", "user:s3cret@tcp(db:3306)", "user:s3cret@tcp(db:3306/leaf", "user:s3cret",
		"user:s3cret/leaf", "user:s3cret@db/leaf", "mysql://user:s3cret@db:3306/leaf", "mysql://user:s3cret/leaf",
		"user:p@s3cret@db/leaf", "user:s3cret@db)/leaf", "user@s3cret/leaf", "s3cret:x/leaf",
		"user:x@tcp(db)/leaf%s3cret", "user:x@tcp(db)/leaf?parseTime=s3cret", "user:x@tcp(db)/leaf?tls=s3cret", "user:x@tcp(db)/leaf?serverPubKey=s3cret",
		"user:x@tcp(db)/leaf?loc=s3cret", "user:x@tcp(db)/leaf?timeout=s3cret", "user:x@tcp(db)/leaf?connectionAttributes=%zs3cret",
		"user:x@tcp(db)/leaf?sql_mode=%zs3cret", "user:x/y?s3cret@tcp(db)/leaf/?",
	} {
		s, err := New(Config{DSN: dsn})
		if err == nil {
			s.Close()
			t.Errorf("%s is taken", dsn)
		} else if strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "user:password@tcp(host:3306)/database") {
			t.Errorf("New(%s): %v", dsn, err)
		}
	}
}

// TestBadParameter says what is wrong.
func TestBadParameter(t *testing.T) {
	for dsn, want := range map[string]string{
		"u:p@tcp(db)/leaf?parseTime=true&timeout=5":  "a parameter",
		"u:p@tcp(db)/leaf?tls=tru":                   "a parameter",
		"u:p@tcp(db:3306/leaf":                       "address",
		"mysql://u:p@db/leaf":                        "is a URL",
		"jdbc:mysql://db/leaf":                       "is a URL",
		"u:p@tcp(db)/leaf?sql_log_bin=0":             "sql_log_bin",
		"u:p@tcp(db)/leaf?SESSION%20SQL_Log_Bin=0":   "sql_log_bin",
		"u:p@tcp(db)/leaf?`sql_log_bin`=0":           "sql_log_bin",
		"u:p@tcp(db)/leaf?x=1,sql_log_bin%3D0":       "sql_log_bin",
		"u:s/e?cr3t=%@tcp(db:3306)":                  "an address or a parameter",
		"u:p@tcp(db)/leaf?wsrep_on=0&parseTime=true": "wsrep_on",
	} {
		if _, err := New(Config{DSN: dsn}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one with %q", dsn, err, want)
		}
	}
	if s, err := New(Config{DSN: "u:p://x@tcp(db)/leaf"}); err != nil {
		t.Errorf("a password with ://: %v", err)
	} else {
		s.Close()
	}
	// What the driver takes for a variable the server may not know.
	for _, params := range []string{"tsl=true", "innodb_lock_wait_timeout='x'"} {
		s := prepare(t, kit.NewDatabase(t)+"?"+params, io.Discard)
		wantError(t, params, s.Open(within(t)), allocator.ErrRefused)
	}
}

// FuzzParseDSN finds what makes an error quote a DSN: there are few errors,
// and none has anything of it.
func FuzzParseDSN(f *testing.F) {
	known := make(map[string]bool)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, dsn := range []string{
		"root@tcp(127.0.0.1:3306)/leaf", "user:password@tcp(db:3306)/leaf?autocommit=0&loc=Local", "user:pass/word@unix(/run/mysqld.sock)/leaf",
		"user:password/leaf", "user:pass@word/leaf", "user:password@tcp(db/leaf", "user:password@tcp(db)x/leaf", "user:password@tcp(db)", "/leaf?tls=password", "//%zz", "/",
	} {
		f.Add(dsn)
		if _, err := parse(dsn, log); err != nil {
			known[err.Error()] = true
		}
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		cfg, err := parse(dsn, log)
		if err != nil && !known[err.Error()] {
			t.Errorf("%q: %v", dsn, err)
		}
		if err == nil && (cfg.DBName == "" || cfg.ClientFoundRows || cfg.MultiStatements || !cfg.ParseTime || cfg.ReadTimeout != ioTimeout) {
			t.Errorf("%q gives %+v", dsn, cfg)
		}
	})
}
