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

// Owner is whose the database is: the row of leaf_installation.
type Owner struct {
	bun.BaseModel `bun:"table:leaf_installation,alias:i"`

	Installation string `bun:"id"`    // its ID
	Store        string `bun:"store"` // a random ID of the database
}

// Claim returns whose the database is. If it is nobody's, it is from now on
// that of this installation. store is the ID of the database that the
// installation is known to use, or empty: one that has lost its owner, or has
// another ID, is refused, with an error that matches [allocator.ErrRefused]. It
// opens the store first.
func (s *Store) Claim(ctx context.Context, installation, store string) (Owner, error) {
	if err := s.Open(ctx); err != nil {
		return Owner{}, err
	}
	o, err := s.database()
	if err != nil {
		return Owner{}, err
	}
	for {
		owner, err := o.owner(ctx)
		switch {
		case err == nil && store != "" && store != owner.Store:
			return Owner{}, fmt.Errorf("%w: installation %s keeps its tags in another database (%s, this is %s): "+
				"the same IDs would come from both; name that database with --mysql, on every generator",
				allocator.ErrRefused, installation, store, owner.Store)
		case err == nil:
			if owner.Installation == installation {
				s.owned.Store(&owner)
			}
			return owner, nil
		case !errors.Is(err, sql.ErrNoRows):
			return Owner{}, s.lost(ctx, err)
		case store != "":
			return Owner{}, fmt.Errorf("%w: installation %s keeps its tags in database %s, and this one is nobody's: "+
				"it lost its state, or it is another one. Name the right one with --mysql, or restore it; if it is the right one, with all that leaf_alloc had: "+
				"INSERT INTO leaf_installation (id, store) VALUES ('%s', '%s')", allocator.ErrRefused, installation, store, installation, store)
		}
		if err := o.claim(ctx, Owner{Installation: installation, Store: rand.Text()}); err != nil {
			return Owner{}, s.lost(ctx, err)
		}
	}
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

// checkOwner makes sure that a database that was ours still is. One that was
// emptied is claimed again, before somebody else does who would take our workers.
func (s *Store) checkOwner(ctx context.Context, o *opened) error {
	ours := s.owned.Load()
	if ours == nil {
		return nil
	}
	owner, err := o.owner(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		s.cfg.Log.Error("the database has lost the row of leaf_installation: was it emptied, or restored? It is written again")
		if err := o.claim(ctx, *ours); err != nil {
			return err
		}
		owner, err = o.owner(ctx)
	}
	if err == nil && (owner.Installation != ours.Installation || owner.Store != ours.Store) {
		err = fmt.Errorf("%w: the database was installation %s's and is %s's now: was it emptied, or restored?", allocator.ErrRefused, ours.Installation, owner.Installation)
	}
	return err
}
