package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/cli"
)

// Widths of the columns of leaf events: the longest type has 21 characters, and most keys have fewer than 20.
const (
	typeWidth = 21
	keyWidth  = 20
	// mostDepth is how deep the objects of a body are shown.
	mostDepth = 2
)

// longAgo is before every Unix time in milliseconds that an event can have, and above every duration in one.
const longAgo = 100_000_000_000 // 1973

// eventLine is an event as one line for people.
func eventLine(e events.Event, colours bool) string {
	kind := strings.TrimPrefix(e.Type, "leaf.")
	code := ""
	switch {
	case !colours:
	case e.Severity == "alert":
		code = cli.Red
	case strings.HasSuffix(kind, ".recovered"):
		code = cli.Green
	}
	head := cli.Colour(cli.Safe(fmt.Sprintf("%-5s  %-*s", e.Severity, typeWidth, kind)), code)
	line := fmt.Sprintf("%s  %s  %-*s", cli.TimeMS(e.Time), head, keyWidth, cli.Safe(e.Key))
	if details := eventDetails(e); details != "" {
		line += "  " + cli.Safe(details)
	}
	return strings.TrimRight(line, " ")
}

// eventDetails are the fields of the body, in their order, without those that the line has already and without the
// configuration of a generator. Times are as in the first column.
func eventDetails(e events.Event) string {
	var details []string
	walk := func(string, json.RawMessage) {}
	walk = func(name string, value json.RawMessage) {
		if strings.Count(name, ".") > mostDepth { // no generator nests so deep, and each level reads the rest again
			return
		}
		if eachField(value, func(inner string, v json.RawMessage) {
			if name != "" {
				inner = name + "." + inner
			}
			walk(inner, v)
		}) {
			return
		}
		text := string(value)
		var s string
		if json.Unmarshal(value, &s) == nil {
			if text = s; s == "" || strings.ContainsAny(s, " \"") {
				text = strconv.Quote(s)
			}
		}
		if s == e.Key && s != "" || text == e.Key || name == "" || strings.HasPrefix(name, "config.") ||
			text == "null" {
			return
		}
		short, isMS := strings.CutSuffix(name, "_ms")
		if n, err := strconv.ParseFloat(text, 64); err == nil && isMS {
			name, text = short, time.Duration(n*float64(time.Millisecond)).Round(time.Microsecond).String()
			if n > longAgo {
				text = cli.TimeMS(time.UnixMilli(int64(n)))
			}
		}
		details = append(details, name+"="+text)
	}
	walk("", e.Data)
	return strings.Join(details, " ")
}

// eachField calls f with the fields of a JSON object in their order. It returns false if value is no object.
func eachField(value json.RawMessage, f func(name string, value json.RawMessage)) bool {
	d := json.NewDecoder(bytes.NewReader(value))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return false
	}
	for d.More() {
		name, err := d.Token()
		var inner json.RawMessage
		if err != nil || d.Decode(&inner) != nil {
			return true
		}
		f(name.(string), inner)
	}
	return true
}
