package schema

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/tests/kit"
)

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
	insert(t, s, "Order", 1, 10) // our own table distinguishes letters' case
	grant("REVOKE DELETE ON " + name(t, dsn) + ".* FROM ")
	s.renew()
	wantError(t, "Remove", s.Remove(within(t), "order", 1, ""), idspace.ErrBadValue)
	advance(t, s, "order", 1, 1)
}
