package main

import (
	"strings"
	"testing"
	"time"
)

func TestLimit(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		effort effort
		with   string
		median time.Duration
		want   string // empty: no limit
	}{
		{"at rest", effort{busy: 0.1, idle: ms, loaded: ms}, withTake, 10 * ms, ""},
		{"just below", effort{busy: 0.89, adding: 0.09, idle: ms, loaded: 5 * ms}, withTake, 10 * ms, ""},
		{"processors", effort{busy: 0.9}, withTake, 10 * ms, "90 % of the time"},
		{"more threads than processors", effort{busy: 1.4}, withNext, 10 * ms, " 100 % of the time"},
		{"the check", effort{adding: 0.1}, withPool, 1, "10 % of the time on the check"},
		{"the connection", effort{idle: ms, loaded: 6 * ms}, withTake, 10 * ms, "took 6ms, and 1ms before"},
		{"a long way", effort{idle: 9 * ms, loaded: 9 * ms}, withTake, 10 * ms, ""},
		{"a way that was not measured", effort{loaded: 9 * ms}, withTake, 10 * ms, ""},
		{"no answer under load", effort{idle: 9 * ms}, withTake, 10 * ms, ""},
		{"a pool's callers do not wait for the connection", effort{idle: ms, loaded: 6 * ms}, withPool, 100, ""},
	} {
		got := c.effort.limit(c.with, c.median)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
