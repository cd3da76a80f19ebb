package wire

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/leafbus/leafbus/bus/idspace"
)

// HeaderOrder is the header of replies with IDs of a strict tag, over NATS and HTTP. Its value is
// [idspace.OrderStrict]. Other replies have no such header.
const HeaderOrder = "Leaf-Order"

// AppendReply appends the reply with these ranges to b: one line for each, first-last or the bare
// number of a range of one, or JSON if the request was JSON.
func AppendReply(b []byte, ranges []idspace.Range, asJSON bool) []byte {
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
func appendJSON(b []byte, ranges []idspace.Range) []byte {
	b = append(b, `{"count":`...)
	b = strconv.AppendInt(b, idspace.Total(ranges), 10)
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
func ParseReply(body []byte) ([]idspace.Range, error) {
	var ranges []idspace.Range
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		first, last, isRange := bytes.Cut(line, []byte("-"))
		r := idspace.Range{}
		var ok bool
		if r.First, ok = ParseID(first); ok {
			r.Last = r.First
			if isRange {
				r.Last, ok = ParseID(last)
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

// ClockReply is one generator's reply to leaf.clock.
type ClockReply struct {
	Node   string `json:"node"`
	Worker int64  `json:"worker"`
	UnixMS int64  `json:"unix_ms"` // by the clock of its machine
}
