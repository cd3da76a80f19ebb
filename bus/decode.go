package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/leafbus/leafbus/internal/wire"
)

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
