package schema

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
)

// alloc is a row of leaf_alloc. The column of the description is desc in some
// tables, and missing in others: it is named by each query.
type alloc struct {
	bun.BaseModel `bun:"table:leaf_alloc,alias:a"`

	BizTag      string         `bun:"biz_tag,pk"`
	MaxID       int64          `bun:"max_id"`
	Step        int64          `bun:"step"`
	UpdateTime  time.Time      `bun:"update_time,nullzero"`
	Description sql.NullString `bun:"description,scanonly"`
	Noted       sql.NullInt64  `bun:"noted,scanonly"` // the least max_id that leaf_mark allows
}

// mark is a row of leaf_mark.
type mark struct {
	bun.BaseModel `bun:"table:leaf_mark,alias:m"`

	BizTag string `bun:"biz_tag,pk"`
	// Floor is where an operator last moved max_id to; see allocator.Tag.
	Floor int64 `bun:"floor"`
	// MaxID is the end of all that was reserved of a tag that was deleted; 0:
	// it is not.
	MaxID int64 `bun:"max_id"`
}

// tag is the record of a row and what is noted of it. A row that was inserted
// by plain SQL after a deletion has a floor from then.
func (a alloc) tag(m mark) allocator.Tag {
	return allocator.Tag{
		Name: a.BizTag, MaxID: max(a.MaxID, 1), Step: a.Step,
		Description: a.Description.String, Updated: a.UpdateTime.UTC(), Floor: max(m.Floor, m.MaxID),
	}
}

// tombstone is the record of a tag that was deleted.
func (m mark) tombstone() allocator.Tag {
	return allocator.Tag{Name: m.BizTag, MaxID: m.MaxID, Deleted: true}
}

// check reports whether IDs of the row can be served.
func (a alloc) check() error {
	if allocator.CheckStep(a.Step, allocator.LimitStep) != nil {
		return fmt.Errorf("%w: the step of %s in leaf_alloc is %d, not from 1 to %d; set it right with `leaf tag set %s --step N`",
			allocator.ErrDamaged, a.BizTag, a.Step, int64(allocator.LimitStep), a.BizTag)
	}
	return nil
}

// named finds the row of leaf_alloc with a name, which it takes twice: by the
// index, and as it is, for collations fold letters' case and ignore spaces at
// the end.
const named = "biz_tag = ? AND CAST(CONVERT(biz_tag USING utf8mb4) AS BINARY) = CAST(? AS BINARY)"
