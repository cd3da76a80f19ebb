package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLayoutCmd(t *testing.T) {
	cleanEnv(t)
	for _, c := range []struct {
		args []string
		want string // "…" stands for the years that are left
	}{
		{nil, `
  63    62   22   21     12   11        0
┌─────┬─────────┬───────────┬─────────────┐
│ 0   │ time 41 │ worker 10 │ sequence 12 │
└─────┴─────────┴───────────┴─────────────┘
time              41 bits of 1ms, from 2010-11-04T01:42:54.657Z
ends              2080-07-10T17:30:30.209Z, in …
workers           1024: as many generators can issue IDs
IDs of a worker   4096 in 1ms, 4096000 a second
largest ID        9223372036854775807
JavaScript        needs strings or BigInt: IDs pass 2^53
`},
	} {
		status, stdout, stderr := leaf(t, append([]string{"layout"}, c.args...)...)
		before, after, _ := strings.Cut(c.want[1:], "…")
		if status != exitOK || !strings.HasPrefix(stdout, before) || !strings.HasSuffix(stdout, " years"+after) || stderr != "" {
			t.Errorf("%v: status %d, %s\nwant\n%s%s", c.args, status, stdout, before, after)
		}
	}
}

func TestLayoutJSON(t *testing.T) {
	cleanEnv(t)
	status, stdout, stderr := leaf(t, "layout", "--id-bits", "53", "--worker-bits", "5", "--sequence-bits", "16", "--time-unit", "1s", "--epoch", "1000", "--json")
	const want = `{"id_bits":53,"time_bits":32,"worker_bits":5,"sequence_bits":16,"time_unit_ms":1000,"epoch":"1970-01-01T00:00:01Z",` +
		`"end":"2106-02-07T06:28:17Z","workers":32,"ids_per_unit":65536,"ids_per_second":65536,"largest_id":"9007199254740991"}` + "\n"
	if status != exitOK || stdout != want || !json.Valid([]byte(stdout)) {
		t.Errorf("status %d, %s, %s; want %s", status, stdout, stderr, want)
	}
}

// The default of --sequence-bits depends on the others only if 12 would leave too little time for any installation.
func TestLayoutSequence(t *testing.T) {
	cleanEnv(t)
	for args, want := range map[string][2]int{ // bits of time and sequence
		"--id-bits 63":                 {41, 12},
		"--worker-bits 5":              {46, 12},
		"--id-bits 62":                 {40, 12}, // until 2045
		"--id-bits 53":                 {41, 2},  // in place of {31, 12}, until 2010
		"--id-bits 53 --worker-bits 6": {41, 6},
		"--id-bits 53 --worker-bits 6 --time-unit 10ms":                  {38, 9},
		"--id-bits 53 --worker-bits 6 --time-unit 100ms":                 {35, 12},
		"--id-bits 53 --worker-bits 6 --time-unit 1s":                    {35, 12},
		"--id-bits 53 --worker-bits 6 --time-unit 1s --sequence-bits 16": {31, 16},
		"--id-bits 60 --epoch 1700000000000":                             {38, 12},
	} {
		status, stdout, stderr := leaf(t, append([]string{"layout", "--json"}, strings.Fields(args)...)...)
		var got layoutReport
		if err := json.Unmarshal([]byte(stdout), &got); status != exitOK || err != nil || [2]int{got.TimeBits, got.SequenceBits} != want {
			t.Errorf("%s: status %d, %s%s; want %d", args, status, stdout, stderr, want)
		}
	}
}
