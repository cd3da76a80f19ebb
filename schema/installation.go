package schema

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
)

// owner is the row of leaf_installation: the installation that the database belongs to.
type owner struct {
	bun.BaseModel `bun:"table:leaf_installation,alias:i"`

	Installation string `bun:"id"`    // its ID
	Store        string `bun:"store"` // a random ID of the database
	Alloc        string `bun:"alloc"` // the table of the tags
}

// Claim returns the installation that the database belongs to, and the database's ID. Both are
// empty if it belongs to none. With first, a database of none then belongs to this installation;
// without it, such a database is left as it is. If the database belongs to this installation, no
// connection is used that leads to another one from then on. Call it before [Database.Open], so
// that nothing is served from a database whose owner is not known.
func (d *Database) Claim(ctx context.Context, installation string, first bool) (of, id string, err error) {
	o := d.fit.Load()
	if o == nil {
		o, _, err = d.migrate(ctx, !first)
	}
	if errors.Is(err, errNoOwner) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	have, err := o.owner(ctx)
	if errors.Is(err, sql.ErrNoRows) && !first {
		return "", "", nil
	}
	if errors.Is(err, sql.ErrNoRows) {
		if err = o.claim(ctx, owner{Installation: installation, Store: rand.Text(), Alloc: o.table}); err == nil {
			have, err = o.owner(ctx)
		}
	}
	if err != nil {
		return "", "", d.explain(ctx, "", err)
	}
	if have.Installation == installation {
		d.owner.Store(&have)
		d.renew() // the connections that were made before
	}
	return have.Installation, have.Store, nil
}

// Repair returns the SQL that, after `leaf migrate`, makes the database, with this ID, the
// installation's; without an installation, the SQL that makes it belong to none.
func (d *Database) Repair(installation, id string) string {
	if installation == "" {
		return "DELETE FROM leaf_installation"
	}
	return fmt.Sprintf("REPLACE INTO leaf_installation (id, store, alloc) VALUES ('%s', '%s', '%s')",
		installation, id, d.cfg.Table)
}

// owner reads the row of leaf_installation.
func (o *opened) owner(ctx context.Context) (have owner, err error) {
	err = o.db.NewSelect().Model(&have).Scan(ctx)
	return have, err
}

// claim writes the row of leaf_installation if there is none. Several may try: the row that is
// there counts.
func (o *opened) claim(ctx context.Context, want owner) error {
	_, err := o.db.NewInsert().Ignore().Model(&want).Exec(ctx)
	return err
}

// checkOwner makes sure that the database has the owner that it had. A row that is gone may come
// back: a restore makes the table before it writes the row.
func (d *Database) checkOwner(ctx context.Context, o *opened) error {
	had := d.owner.Load()
	if had == nil {
		return nil // one that nobody claims
	}
	now, err := o.owner(ctx)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = fmt.Errorf("%w: the database has lost the row of leaf_installation: was it emptied, or is it being restored? "+
			"If it is the right one: %s", allocator.ErrUnavailable, d.Repair(had.Installation, had.Store))
	case err == nil && now != *had:
		err = fmt.Errorf("%w: the database was %s of installation %s, and is %s of installation %s now: was it "+
			"emptied, or restored?",
			allocator.ErrRefused, had.Store, had.Installation, now.Store, now.Installation)
	}
	return err
}
