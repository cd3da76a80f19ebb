package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

// Range is a run of consecutive IDs:
//
//	type Range struct{ First, Last int64 } // both are included, and 1 <= First <= Last
//
// r.Len() is how many they are, r.All() yields them, and r.String() is the form of a reply.
type Range = idspace.Range

// ID is an ID that is a string in JSON, because JavaScript cannot read numbers above 2^53 exactly:
//
//	type Order struct {
//		ID bus.ID `json:"id"` // {"id":"1234567890123456789"}
//	}
//
// In Go it is a number: bus.ID(id) and int64(order.ID) convert it. A bare whole number in JSON is
// read, too.
type ID int64

// MarshalJSON implements [json.Marshaler].
func (d ID) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(int64(d), 10)), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (d *ID) UnmarshalJSON(b []byte) error {
	if n := len(b); n > 1 && b[0] == '"' && b[n-1] == '"' {
		b = b[1 : n-1]
	}
	id, ok := wire.ParseID(b)
	if !ok {
		return fmt.Errorf("%s is not an ID: want a whole number from 1 to 9223372036854775807", idspace.Quote(b))
	}
	*d = ID(id)
	return nil
}

// UnmarshalYAML reads a whole number, as text too. The interface is that of the yaml packages.
func (d *ID) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if err := unmarshal(&text); err != nil {
		return err
	}
	return d.UnmarshalJSON([]byte(text))
}

// Decoded is the reply of leaf.decode.
type Decoded struct {
	ID       ID     `json:"id"`
	Time     string `json:"time"` // RFC 3339 with milliseconds, UTC
	UnixMS   int64  `json:"unix_ms"`
	Worker   int64  `json:"worker"`
	Sequence int64  `json:"sequence"`
}

// Decode returns the time, worker and sequence of a snowflake.
func (c *Client) Decode(ctx context.Context, id int64) (Decoded, error) {
	var d Decoded
	msg, err := c.ask(ctx, request{subject: wire.SubjectDecode, body: strconv.AppendInt(nil, id, 10)})
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(msg.Data, &d); err != nil {
		return d, fmt.Errorf("the answer on %s cannot be read: %w", wire.SubjectDecode, err)
	}
	return d, nil
}
