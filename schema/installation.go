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

// Owner is whose the database is: the row of leaf_installation.
type Owner struct {
	bun.BaseModel `bun:"table:leaf_installation,alias:i"`

	Installation string `bun:"id"`    // its ID
	Store        string `bun:"store"` // a random ID of the database
}

// Claim returns whose the database is. If it is nobody's, it is from now on
// that of this installation. store is the ID of the database that the
// installation is known to use, or empty: one that has lost its owner, or has
// another ID, is refused, with an error that matches [allocator.ErrRefused].
// From then on no connection is used that leads to another database. It comes
// before [Store.Open], so that nothing is served from a database that is not known.
func (s *Store) Claim(ctx context.Context, installation, store string) (Owner, error) {
	nobodys := fmt.Errorf("%w: installation %s keeps its tags in database %s, and this one is nobody's: "+
		"it lost its state, or it is another one. Name the right one with --mysql, or restore it; if it is the right one, with all that leaf_alloc had: "+
		"`leaf migrate`, then INSERT INTO leaf_installation (id, store) VALUES ('%s', '%s')", allocator.ErrRefused, installation, store, installation, store)
	o, err := s.examine(ctx, store != "")
	if errors.Is(err, errNoOwner) {
		return Owner{}, nobodys
	}
	if err != nil {
		return Owner{}, err
	}
	for {
		owner, err := o.owner(ctx)
		switch {
		case err == nil && store != "" && store != owner.Store:
			return Owner{}, fmt.Errorf("%w: installation %s keeps its tags in another database (%s, this is %s): "+
				"the same IDs would come from both. Name that database with --mysql, on every generator; or, if it is gone for good and this one has all its rows, "+
				"here: UPDATE leaf_installation SET id = '%s', store = '%s'", allocator.ErrRefused, installation, store, owner.Store, installation, store)
		case err == nil:
			s.databaseID.Store(&owner.Store)
			s.owner.Store(&claimed{owner, owner.Installation == installation})
			s.renew() // the connections that were made before
			return owner, nil
		case !errors.Is(err, sql.ErrNoRows):
			return Owner{}, s.lost(ctx, err)
		case store != "":
			return Owner{}, nobodys
		}
		if err := o.claim(ctx, Owner{Installation: installation, Store: rand.Text()}); err != nil {
			return Owner{}, s.lost(ctx, err)
		}
	}
}

// Owner returns whose the database is, and claims nothing; the zero value if it
// is nobody's.
func (s *Store) Owner(ctx context.Context) (Owner, error) {
	o, err := s.examine(ctx, true)
	if errors.Is(err, errNoOwner) {
		return Owner{}, nil
	}
	if err != nil {
		return Owner{}, err
	}
	owner, err := o.owner(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return Owner{}, nil
	}
	if err != nil {
		return Owner{}, s.lost(ctx, err)
	}
	return owner, nil
}

// owner reads whose the database is.
func (o *opened) owner(ctx context.Context) (owner Owner, err error) {
	err = o.db.NewSelect().Model(&owner).Scan(ctx)
	return owner, err
}

// claim makes the database the owner's, if it is nobody's: whoever was first, the
// row that counts is the one that is there.
func (o *opened) claim(ctx context.Context, owner Owner) error {
	_, err := o.db.NewInsert().Ignore().Model(&owner).Exec(ctx)
	return err
}

// claimed is an owner that was found, and whether that is this installation.
type claimed struct {
	Owner
	ours bool
}

// restoring is how long a restore may take from the table leaf_installation to its row.
const restoring = 2 * time.Second

// checkOwner makes sure that the database has the owner that it had. Where ours
// was removed, over a connection that is known to lead here, it is written again,
// before somebody else claims the database and takes our workers.
func (s *Store) checkOwner(ctx context.Context, o *opened) error {
	had := s.owner.Load()
	if had == nil {
		return nil // a store that nobody claims
	}
	owner, err := o.owner(ctx)
	if errors.Is(err, sql.ErrNoRows) && had.ours {
		// A restore creates the table before it writes the row, and ends where that is there already.
		select {
		case <-time.After(restoring):
		case <-ctx.Done():
			return ctx.Err()
		}
		owner, err = o.owner(ctx)
	}
	if errors.Is(err, sql.ErrNoRows) && had.ours {
		s.cfg.Log.Error("the database has lost the row of leaf_installation: was it emptied, or restored? It is written again")
		if err := o.claim(ctx, had.Owner); err != nil {
			return err
		}
		owner, err = o.owner(ctx)
	}
	if err == nil && owner != had.Owner {
		err = fmt.Errorf("%w: the database was %s of installation %s, and is %s of installation %s now: was it emptied, or restored?",
			allocator.ErrRefused, had.Store, had.Installation, owner.Store, owner.Installation)
	}
	return err
}
