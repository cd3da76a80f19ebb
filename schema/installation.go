package schema

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

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
// without it, such a database is left as it is. If the database belongs to this installation, no connection is
// used that leads to another one from then on. Call it before [Database.Open], so that nothing is
// served from a database whose owner is not known.
func (d *Database) Claim(ctx context.Context, installation string, first bool) (of, id string, err error) {
	o, err := d.examine(ctx, !first)
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
		return "", "", d.explain(ctx, err)
	}
	if have.Installation == installation {
		d.owner.Store(&have)
		d.renew() // the connections that were made before
	}
	return have.Installation, have.Store, nil
}

// Repair returns the SQL that, after `leaf migrate`, makes the database, with this ID, the installation's;
// without an installation, the SQL that makes it belong to none.
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

// claim writes the row of leaf_installation if there is none. Several may try: the row that is there counts.
func (o *opened) claim(ctx context.Context, want owner) error {
	_, err := o.db.NewInsert().Ignore().Model(&want).Exec(ctx)
	return err
}

// restoring is how long a restore may take from the table leaf_installation to its row.
const restoring = 2 * time.Second

// checkOwner makes sure that the database has the owner that it had. Where ours
// was removed, over a connection that is known to lead here, it is written again,
// before somebody else claims the database and takes our workers.
func (d *Database) checkOwner(ctx context.Context, o *opened) error {
	had := d.owner.Load()
	if had == nil {
		return nil // one that nobody claims
	}
	now, err := o.owner(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		// A restore creates the table before it writes the row, and ends where that is there already.
		select {
		case <-time.After(restoring):
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err = o.owner(ctx)
	}
	if errors.Is(err, sql.ErrNoRows) {
		d.cfg.Log.Error("the database has lost the row of leaf_installation: was it emptied, or restored? It is " +
			"written again")
		if err := o.claim(ctx, *had); err != nil {
			return err
		}
		now, err = o.owner(ctx)
	}
	if err == nil && now != *had {
		err = fmt.Errorf("%w: the database was %s of installation %s, and is %s of installation %s now: was it "+
			"emptied, or restored?",
			allocator.ErrRefused, had.Store, had.Installation, now.Store, now.Installation)
	}
	return err
}
