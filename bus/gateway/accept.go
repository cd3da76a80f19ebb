package gateway

import (
	"mime"
	"strconv"
	"strings"
)

// prefersJSON reports whether the headers Accept of a request would rather have JSON than
// plain text. The type that is named with the greatest weight is taken, the first of
// equals; a range of types counts where none of the two is named.
func prefersJSON(accept []string) bool {
	if len(accept) == 0 || len(accept) == 1 && accept[0] == "*/*" {
		return false
	}
	var named, ranged float64
	json, jsonRange := false, false
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, ok := params["q"]; ok {
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		switch name {
		case "application/json", "text/plain":
			if weight > named {
				named, json = weight, name == "application/json"
			}
		case "application/*", "text/*", "*/*":
			if weight > ranged {
				ranged, jsonRange = weight, name == "application/*"
			}
		}
	}
	if named > 0 {
		return json
	}
	return jsonRange
}
