package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus/events"
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

// Colours of a terminal.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	plain  = "\x1b[0m"
)

// colourful reports whether to write colours: to a terminal, unless NO_COLOR says otherwise.
func colourful(stream any) bool {
	return isTerminal(stream) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// colour returns text in a colour; an empty one leaves it as it is.
func colour(text, code string) string {
	if code == "" {
		return text
	}
	return code + text + plain
}

// eventLine is an event as one line for people.
func eventLine(e events.Event, colours bool) string {
	kind := strings.TrimPrefix(e.Type, "leaf.")
	code := ""
	switch {
	case !colours:
	case e.Severity == "alert":
		code = red
	case strings.HasSuffix(kind, ".recovered"):
		code = green
	}
	safe := func(text string) string { return strings.Map(printable, text) }
	head := colour(safe(fmt.Sprintf("%-5s  %-*s", e.Severity, typeWidth, kind)), code)
	line := fmt.Sprintf("%s  %s  %-*s", precise(e.Time), head, keyWidth, safe(e.Key))
	if details := eventDetails(e); details != "" {
		line += "  " + safe(details)
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
		if s == e.Key && s != "" || text == e.Key || name == "" || strings.HasPrefix(name, "config.") || text == "null" {
			return
		}
		short, isMS := strings.CutSuffix(name, "_ms")
		if n, err := strconv.ParseFloat(text, 64); err == nil && isMS {
			name, text = short, time.Duration(n*float64(time.Millisecond)).Round(time.Microsecond).String()
			if n > longAgo {
				text = precise(time.UnixMilli(int64(n)))
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
