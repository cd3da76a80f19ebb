package bus

import "context"

// Source gives IDs one at a time: a [Tag], a [Pool], and the fake of package bustest. A service
// that takes one can be tested without a generator.
type Source interface {
	// Next returns an ID that no other caller has.
	Next(ctx context.Context) (int64, error)
}

// Tag is a client's handle for one tag. [Client.Tag] returns it. Its methods are safe for
// concurrent use.
type Tag struct {
	c    *Client
	name string
}

// Tag returns the handle of a tag. It asks nothing: the calls return an error if there is no such
// tag.
func (c *Client) Tag(name string) *Tag { return &Tag{c, name} }

// Next is [Client.Next].
func (t *Tag) Next(ctx context.Context) (int64, error) { return t.c.Next(ctx, t.name) }

// Take is [Client.Take]: n IDs with one request, as for the rows that an ORM inserts together.
func (t *Tag) Take(ctx context.Context, n int64) ([]Range, error) { return t.c.Take(ctx, t.name, n) }

// Pool is [Client.Pool].
func (t *Tag) Pool(opts ...PoolOption) (*Pool, error) { return t.c.Pool(t.name, opts...) }
