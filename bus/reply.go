package bus

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// AppendReply adds the reply with these ranges to b: a line each, first-last or
// the bare number of a run of one, or JSON if the request was JSON.
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

// appendJSON writes by hand what would else take most of a request's time.
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

// ParseReply reads the reply to an empty or text request. Anything but
// ranges of positive IDs is an error: an ID that was misread is somebody's data.
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
			return nil, fmt.Errorf("a reply that is not IDs: %s", wire.Quote(body))
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// total is how many IDs are in the ranges, at most the largest int64.
func total(ranges []Range) int64 {
	var n int64
	for _, r := range ranges {
		if n += r.Len(); n < 0 {
			return math.MaxInt64
		}
	}
	return n
}
