package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/leafbus/leafbus/bus/idspace"
)

// maxRequest is the longest body of a request for IDs, in bytes.
const maxRequest = 4096

// Request is what a caller asks for.
type Request struct {
	Count int64 // at least 1
	JSON  bool  // the reply must be JSON
}

// ParseRequest reads the body of a request for IDs. White space around it is ignored. It is empty
// (one ID), a decimal number without sign or leading zeros, or a JSON object with the field count.
// A number above the largest int64 is read as that, which no generator serves. The text of an error
// is for the caller.
func ParseRequest(body []byte) (Request, error) {
	if len(body) > maxRequest {
		return Request{}, fmt.Errorf("the body has %d bytes, at most %d are allowed", len(body), maxRequest)
	}
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0:
		return Request{Count: 1}, nil
	case body[0] == '{':
		return parseJSON(body)
	}
	n, ok := parseCount(body)
	if !ok {
		return Request{}, fmt.Errorf("%s is not a count: want nothing, a number from 1, or {\"count\":n}",
			idspace.Quote(body))
	}
	return Request{Count: n}, nil
}

// parseCount reads [1-9][0-9]*.
func parseCount(b []byte) (n int64, ok bool) {
	if len(b) == 0 || b[0] == '0' {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(string(b), 10, 64) // if the number is too large it returns the largest
	return n, err == nil || errors.Is(err, strconv.ErrRange)
}

func parseJSON(body []byte) (Request, error) {
	var fields map[string]json.RawMessage // a struct would ignore the case of names
	if err := json.Unmarshal(body, &fields); err != nil {
		return Request{}, fmt.Errorf("the body is not JSON: %v", err)
	}
	req := Request{Count: 1, JSON: true}
	for name, value := range fields {
		if name != "count" {
			return Request{}, fmt.Errorf("unknown field %s: the only field is count", idspace.Quote(name))
		}
		var ok bool
		if req.Count, ok = parseCount(value); !ok {
			return Request{}, fmt.Errorf("count is %s, not a whole number from 1", idspace.Quote(value))
		}
	}
	return req, nil
}
