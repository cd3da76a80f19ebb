package schema

import (
	"context"
	"database/sql"
	"errors"
)

// Installation returns the ID of the installation that the database belongs
// to. If it belongs to none yet, that is from now on the one with this ID. It
// opens the store first.
func (s *Store) Installation(ctx context.Context, id string) (string, error) {
	if err := s.Open(ctx); err != nil {
		return "", err
	}
	o, err := s.database()
	if err != nil {
		return "", err
	}
	for {
		var have string
		err := o.db.NewRaw("SELECT id FROM leaf_installation").Scan(ctx, &have)
		if err == nil {
			return have, nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return "", s.explain(ctx, err)
		}
		// Whoever was first, the row that counts is the one that is there.
		if _, err := o.db.ExecContext(ctx, "INSERT IGNORE INTO leaf_installation (id) VALUES (?)", id); err != nil {
			return "", s.explain(ctx, err)
		}
	}
}
