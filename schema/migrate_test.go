package schema

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/tests/kit"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	s := prepare(t, dsn, io.Discard)
	created, err := s.Migrate(within(t))
	if want := []string{"leaf_alloc", "leaf_mark", "leaf_installation"}; err != nil || !slices.Equal(created, want) {
		t.Fatalf("Migrate: %v, %v; want %v", created, err, want)
	}
	if got := ask[string](t, dsn, "SELECT collation_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'leaf_alloc' AND column_name = 'biz_tag'"); got != "utf8mb4_bin" {
		t.Errorf("biz_tag has the collation %s", got)
	}
	if _, _, err := s.Claim(within(t), "mine", true); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(within(t)); err != nil {
		t.Fatal(err)
	}
	insert(t, s, "order", 1, 10)
	all := func() (text string) {
		for _, table := range created {
			text += snapshot(t, dsn, table)
		}
		return text
	}
	before := all()
	if created, err := s.Migrate(within(t)); err != nil || len(created) > 0 {
		t.Errorf("Migrate again: %v, %v", created, err)
	}
	text, _ := SQL("")
	execute(t, dsn, strings.Split(strings.TrimSuffix(text, ";\n"), ";\n")...)
	if after := all(); after != before {
		t.Errorf("the tables were changed:\n%s\nwas:\n%s", after, before)
	}
	execute(t, dsn, "DROP TABLE leaf_mark")
	if created, err := s.Migrate(within(t)); err != nil || !slices.Equal(created, []string{"leaf_mark"}) {
		t.Errorf("Migrate with leaf_mark gone: %v, %v", created, err)
	}
	if after := all(); after != before {
		t.Errorf("the other tables were changed:\n%s\nwas:\n%s", after, before)
	}
}

// TestCheck creates nothing where it shall not.
func TestCheck(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	s := prepare(t, dsn, io.Discard)
	s.cfg.Check = true
	for _, sql := range []string{"DO 1", leafTable("", "utf8mb4_bin")} {
		execute(t, dsn, sql)
		err := s.Open(within(t))
		wantError(t, "Open", err, allocator.ErrRefused)
		if err == nil || !strings.Contains(err.Error(), "leaf_mark, leaf_installation") ||
			!strings.Contains(err.Error(), "leaf migrate") {
			t.Errorf("Open does not say what is missing: %v", err)
		}
		if n := ask[int](t, dsn, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name <> 'leaf_alloc'"); n > 0 {
			t.Errorf("%d tables were created", n)
		}
	}
	newDatabase(t, dsn)
	if err := s.Open(within(t)); err != nil {
		t.Errorf("Open of what is there now: %v", err)
	}
}

// TestRights names what is needed later, for administration.
func TestRights(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	newDatabase(t, dsn)
	app := account(t, dsn, "SELECT, INSERT, UPDATE")
	err := prepare(t, app, io.Discard).Open(within(t))
	if !errors.Is(err, allocator.ErrMisconfigured) || !strings.Contains(err.Error(), "DELETE command denied") {
		t.Errorf("Open: %v", err)
	}
	// What it may not do later is no outage, when it is asked for.
	grant := func(what string) {
		edit(t, app, func(cfg *mysql.Config) { execute(t, dsn, what+cfg.User+"@'%'") })
	}
	grant("GRANT DELETE ON " + name(t, dsn) + ".* TO ")
	s := newDatabase(t, app)
	insert(t, s, "order", 1, 10)
	grant("REVOKE DELETE ON " + name(t, dsn) + ".* FROM ")
	s.renew()
	wantError(t, "Remove", s.Remove(within(t), "order", 1, ""), idspace.ErrBadValue)
	advance(t, s, "order", 1, 1)
}

// TestNotOpen says so, whatever is asked.
func TestNotOpen(t *testing.T) {
	s := prepare(t, "root@tcp(127.0.0.1:1)/leaf", io.Discard)
	ctx := within(t)
	_, _, advance := s.Advance(ctx, "order", 1, 10, 1)
	_, peek := s.Peek(ctx, "order")
	add := s.Add(ctx, allocator.Row{Name: "order", MaxID: 1, Step: 1})
	_, _, claim := s.Claim(ctx, "mine", true)
	for what, err := range map[string]error{
		"Advance": advance, "Peek": peek, "Add": add, "Check": s.Check(ctx), "Claim": claim, "Open": s.Open(ctx), "Err": s.Err(),
	} {
		wantError(t, what, err, allocator.ErrUnavailable)
	}
}
