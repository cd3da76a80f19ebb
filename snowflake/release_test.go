package snowflake_test

import (
	"math"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
)

func TestRelease(t *testing.T) {
	t.Parallel()
	const (
		now    = 1_700_000_000_000
		margin = 10_000 // as the documents say
		hour   = 3_600_000
	)
	for name, c := range map[string]struct {
		acquired, reported, reserved int64
		want                         int64
	}{
		"killed long ago":                            {now - 9*hour, now - 2*hour, now + 22*hour, now + margin},
		"killed just now":                            {now - 9*hour, now - 1, now + 24*hour, now + margin},
		"its clock was ahead at the last report":     {now - 9*hour, now + hour, now + 24*hour, now + hour + margin},
		"its clock was ahead when it took it":        {now + hour, now - 1, now + 24*hour, now + hour + margin},
		"reserved for less than that":                {now - 9*hour, now - hour, now + margin - 1, now + margin - 1},
		"reserved for just that":                     {now - 9*hour, now - hour, now + margin, now + margin},
		"reserved for a little more":                 {now - 9*hour, now - hour, now + margin + 1, now + margin},
		"its clock was ahead of what it reserved":    {now - 9*hour, now + 3*hour, now + 2*hour, now + 2*hour},
		"the reservation is over":                    {now - 9*hour, now - 8*hour, now - hour, now - hour},
		"nothing is known but the reservation":       {0, 0, now + hour, now + margin},
		"reserved for ever, and never heard":         {0, 0, math.MaxInt64, now + margin},
		"a last report that cannot be, and no doubt": {0, math.MaxInt64, now + hour, now + hour},
		"neither can be":                             {0, math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		e := snowflake.Entry{Version: 7, Record: snowflake.Record{
			Worker: 5, Node: "n", Incarnation: "old", ReservedUntil: c.reserved, Acquired: c.acquired, Reported: c.reported,
		}}
		got := snowflake.Release(e, now)
		if got.ReservedUntil != c.want {
			t.Errorf("%s: reserved until now%+d, want now%+d", name, got.ReservedUntil-now, c.want-now)
		}
		again := snowflake.Release(e, now)
		if len(got.Incarnation) < 20 || got.Incarnation == again.Incarnation {
			t.Errorf("%s: the incarnations are %q and %q, want one of its own each", name, got.Incarnation, again.Incarnation)
		}
		want := e.Record
		want.Incarnation, want.ReservedUntil = got.Incarnation, got.ReservedUntil
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
