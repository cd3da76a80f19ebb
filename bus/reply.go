package bus

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// HeaderOrder is the header of replies with IDs of a strict tag, over NATS and HTTP. Its value is
// [OrderStrict]. Other replies have no such header.
const HeaderOrder = "Leaf-Order"

// The orders of a tag. An order is chosen when the tag is created, and never changes.
const (
	// OrderTrend is the default: the IDs of each generator increase.
	OrderTrend = "trend"
	// OrderStrict: if a request is sent after the answer to another one has arrived, all its IDs are
	// above all IDs of that answer. A batch is one run of consecutive IDs. There may be gaps.
	OrderStrict = "strict"
)

// AppendReply appends the reply with these ranges to b: one line for each, first-last or the bare
// number of a range of one, or JSON if the request was JSON.
func AppendReply(b []byte, ranges []Range, asJSON bool) []byte {
	if asJSON {
		return appendJSON(b, ranges)
	}
	for i, r := range ranges {
		if i > 0 {
			b = append(b, '\n')
		}
		b = r.Append(b)
	}
	return b
}

// appendJSON does without encoding/json, which would take most of a request's time.
func appendJSON(b []byte, ranges []Range) []byte {
	b = append(b, `{"count":`...)
	b = strconv.AppendInt(b, total(ranges), 10)
	b = append(b, `,"ranges":[`...)
	for i, r := range ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"first":"`...)
		b = strconv.AppendInt(b, r.First, 10)
		b = append(b, `","last":"`...)
		b = strconv.AppendInt(b, r.Last, 10)
		b = append(b, `"}`...)
	}
	return append(b, `]}`...)
}

// ParseReply reads the reply to an empty or text request. Anything but ranges of positive IDs is an
// error, because a misread ID may belong to somebody else.
func ParseReply(body []byte) ([]Range, error) {
	var ranges []Range
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		first, last, isRange := bytes.Cut(line, []byte("-"))
		r := Range{}
		var ok bool
		if r.First, ok = wire.ParseID(first); ok {
			r.Last = r.First
			if isRange {
				r.Last, ok = wire.ParseID(last)
				ok = ok && r.Last > r.First
			}
		}
		if !ok {
			return nil, fmt.Errorf("the reply is not IDs: %s", idspace.Quote(body))
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// total returns how many IDs are in the ranges, at most the largest int64.
func total(ranges []Range) int64 {
	var n int64
	for _, r := range ranges {
		if n += r.Len(); n < 0 {
			return math.MaxInt64
		}
	}
	return n
}

// ID is an ID that is a string in JSON, because JavaScript cannot read numbers above 2^53 exactly:
//
//	type Order struct {
//		ID bus.ID `json:"id"` // {"id":"1234567890123456789"}
//	}
//
// In Go it is a number: bus.ID(id) and int64(order.ID) convert it. A bare whole number in JSON is read, too.
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
