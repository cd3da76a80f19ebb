package bus_test

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/bus"
)

// order is a row of the table orders.
type order struct {
	ID       int64 `bun:",pk"`
	Customer string
}

// insert writes new rows with bun, an ORM: one request for all IDs, and one INSERT. The columns need no AUTO_INCREMENT.
func insert(ctx context.Context, db *bun.DB, ids *bus.Tag, rows []order) error {
	ranges, err := ids.Take(ctx, int64(len(rows)))
	if err != nil {
		return err
	}
	i := 0
	for _, r := range ranges {
		for id := range r.All() {
			rows[i].ID = id
			i++
		}
	}
	_, err = db.NewInsert().Model(&rows).Exec(ctx)
	return err
}

// The rows of an ORM get their IDs before they are written. So they can refer to each other.
func ExampleTag_Take_orm() {
	write := func(ctx context.Context, db *bun.DB, client *bus.Client) error {
		return insert(ctx, db, client.Tag("order"), []order{{Customer: "ada"}, {Customer: "bob"}})
	}
	_ = write // it needs a database
}
