package bus

import (
	"fmt"
	"strconv"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// ID is an ID that JSON carries as a string, because IDs pass 2^53. A bare
// number is read too, if it is written as a whole one.
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
		return fmt.Errorf("%s is not an ID: want a whole number from 1 to 9223372036854775807", wire.Quote(b))
	}
	*d = ID(id)
	return nil
}
