package main

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/snowflake"
)

func TestWorkers(t *testing.T) {
	for _, c := range []struct {
		id, span, datacenter string
		bits                 int
		first, last          int64
		ok                   bool
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

		{datacenter: "0", first: 0, last: 31, ok: true},
		{datacenter: "31", first: 992, last: 1023, ok: true},
		{datacenter: "3", bits: 2, first: 768, last: 1023, ok: true},
		{datacenter: "1023", bits: 10, first: 1023, last: 1023, ok: true},
		{datacenter: "2", span: "64-70", first: 64, last: 70, ok: true},
		{datacenter: "2", id: "95", first: 95, last: 95, ok: true},
		{datacenter: "2", span: "63-70"}, {datacenter: "2", id: "96"}, {datacenter: "2", id: "1"},
		{datacenter: "32"}, {datacenter: "-1"}, {datacenter: "x"}, {datacenter: "0", bits: 11}, {datacenter: "0", bits: -1},
		{bits: 4},
	} {
		f := workerFlags{id: c.id, span: c.span, datacenter: c.datacenter, datacenterBits: c.bits}
		if f.datacenterBits == 0 {
			f.datacenterBits = defaultDatacenterBits
		}
		first, last, err := f.workers(snowflake.DefaultLayout())
		if _, usage := errors.AsType[cli.UsageError](err); first != c.first || last != c.last || usage == c.ok || (err == nil) != c.ok {
			t.Errorf("%+v: %d to %d, %v; want %d to %d", f, first, last, err, c.first, c.last)
		}
	}
}
