package main

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/snowflake"
)

func TestWorkers(t *testing.T) {
	for _, c := range []struct {
		id, span    string
		first, last int64
		ok          bool
	}{
		{first: 0, last: 1023, ok: true},
		{id: "0", first: 0, last: 0, ok: true},
		{id: "1023", first: 1023, last: 1023, ok: true},
		{span: "3-9", first: 3, last: 9, ok: true},
		{span: "7-7", first: 7, last: 7, ok: true},
		{span: "0-1023", first: 0, last: 1023, ok: true},
		{id: "1024"}, {id: "-1"}, {id: "x"}, {id: "1-2"}, {id: "9223372036854775808"},
		{span: "5", first: 5, last: 5, ok: true},
		{span: "1024"}, {span: "-"}, {span: "5-"}, {span: "-5"}, {span: "9-3"}, {span: "0-1024"}, {span: "1-2-3"}, {span: "a-b"},
		{id: "1", span: "1-2"},
	} {
		f := workerFlags{id: c.id, span: c.span}
		first, last, err := f.workers(snowflake.DefaultLayout())
		if _, usage := errors.AsType[cli.UsageError](err); first != c.first || last != c.last || usage == c.ok || (err == nil) != c.ok {
			t.Errorf("%+v: %d to %d, %v; want %d to %d", f, first, last, err, c.first, c.last)
		}
	}
}
