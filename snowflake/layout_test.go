package snowflake_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// endOf9999 is the first millisecond of the year 10000.
const endOf9999 = 253_402_300_800_000

func TestLayoutValidate(t *testing.T) {
	for name, c := range map[string]struct {
		layout snowflake.Layout
		want   string // in the error; "": valid
	}{
		"default":               {snowflake.DefaultLayout(), ""},
		"least time":            {snowflake.Layout{TimeBits: 30, WorkerBits: 1, SequenceBits: 32}, ""},
		"until 10000":           {snowflake.Layout{Epoch: endOf9999 - 1<<41, TimeBits: 41, WorkerBits: 10, SequenceBits: 12}, "after the year 9999"},
		"too much time":         {snowflake.Layout{TimeBits: 48, WorkerBits: 3, SequenceBits: 12}, "after the year 9999"},
		"too little time":       {snowflake.Layout{TimeBits: 29, WorkerBits: 2, SequenceBits: 32}, "12 days"},
		"no worker":             {snowflake.Layout{TimeBits: 41, WorkerBits: 0, SequenceBits: 22}, "1 bit of worker"},
		"no sequence":           {snowflake.Layout{TimeBits: 41, WorkerBits: 22, SequenceBits: 0}, "1 of sequence"},
		"one bit more":          {snowflake.Layout{TimeBits: 41, WorkerBits: 10, SequenceBits: 13}, "64 together"},
		"nothing":               {snowflake.Layout{}, "12 days"},
		"units of 1 s":          {snowflake.Layout{WorkerBits: 6, SequenceBits: 16, TimeBits: 31, UnitMS: 1000}, ""},
		"units, 64 bits":        {snowflake.Layout{WorkerBits: 11, SequenceBits: 12, TimeBits: 41, UnitMS: 10}, "64 together"},
		"units, after 9999":     {snowflake.Layout{WorkerBits: 10, SequenceBits: 12, TimeBits: 41, UnitMS: 1000}, "after the year 9999"},
		"units of 1 ms":         {snowflake.Layout{WorkerBits: 10, SequenceBits: 12, TimeBits: 41, UnitMS: 1}, "counted in"},
		"units of 7 ms":         {snowflake.Layout{WorkerBits: 10, SequenceBits: 12, TimeBits: 41, UnitMS: 7}, "counted in"},
		"epoch before 1970":     {snowflake.Layout{Epoch: -1, TimeBits: 41, WorkerBits: 10, SequenceBits: 12}, "before 1970"},
		"widths that wrap":      {snowflake.Layout{TimeBits: math.MaxInt, WorkerBits: math.MaxInt, SequenceBits: 65}, "bits"},
		"epoch in microseconds": {snowflake.Layout{Epoch: snowflake.DefaultEpoch * 1000, TimeBits: 41, WorkerBits: 10, SequenceBits: 12}, "after the year 9999"},
	} {
		err := c.layout.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestLayoutCorners: what is composed is decoded to the same parts, at all corners of a layout.
func TestLayoutCorners(t *testing.T) {
	for _, l := range []snowflake.Layout{
		snowflake.DefaultLayout(),
		{Epoch: 1_577_836_800_000, TimeBits: 42, WorkerBits: 5, SequenceBits: 16},
		{Epoch: 7, TimeBits: 30, WorkerBits: 1, SequenceBits: 32},
		{Epoch: 0, TimeBits: 47, WorkerBits: 15, SequenceBits: 1},
		{Epoch: 7, TimeBits: 41, WorkerBits: 6, SequenceBits: 6},
		snowflake.DefaultLayout().In(10 * time.Millisecond),
		snowflake.Layout{Epoch: 7, TimeBits: 31, WorkerBits: 6, SequenceBits: 16}.In(time.Second),
	} {
		for _, ms := range []int64{l.Epoch + l.Unit(), l.End() - l.Unit()} {
			for _, worker := range []int64{0, 1, l.Workers() - 1} {
				for _, sequence := range []int64{0, 1, l.PerUnit() - 1} {
					p := snowflake.Parts{UnixMS: ms, Worker: worker, Sequence: sequence}
					if got, err := l.Decode(l.Compose(p)); got != p || err != nil {
						t.Errorf("%+v: %+v is composed to %d and decoded to %+v, %v", l, p, l.Compose(p), got, err)
					}
				}
			}
		}
		last := snowflake.Parts{UnixMS: l.End() - l.Unit(), Worker: l.Workers() - 1, Sequence: l.PerUnit() - 1}
		if id := l.Compose(last); id != math.MaxInt64>>(63-l.Bits()) || l.Validate() != nil {
			t.Errorf("%+v: the last ID is %d; %v", l, id, l.Validate())
		}
		for ms, want := range map[int64]int64{ // where the first unit from ms on begins
			l.Epoch: l.Epoch, l.Epoch + 1: l.Epoch + l.Unit(), l.Epoch - 1: l.Epoch - 1, math.MaxInt64: math.MaxInt64,
		} {
			if got := l.UnitFrom(ms); got != want && (ms < math.MaxInt64 || got < want-2*l.Unit()) {
				t.Errorf("%+v: the first unit from %d on begins at %d, want %d", l, ms, got, want)
			}
		}
		if p, err := l.Decode(math.MaxInt64>>(63-l.Bits()) + 1); !errors.Is(err, snowflake.ErrNotAnID) {
			t.Errorf("%+v: a number with too many bits is decoded to %+v, %v", l, p, err)
		}
	}
}

// FuzzDecode: what is accepted is composed to the same ID; what is refused is not
// positive or has too many bits.
func FuzzDecode(f *testing.F) {
	const epoch = snowflake.DefaultEpoch
	f.Add(int64(1_541_815_603_606_036_480), int64(epoch), uint8(41), uint8(10), uint8(12), uint8(0))
	f.Add(int64(math.MaxInt64), int64(0), uint8(30), uint8(1), uint8(32), uint8(0))
	f.Add(int64(math.MinInt64), int64(0), uint8(47), uint8(15), uint8(1), uint8(0))
	f.Add(int64(0), int64(0), uint8(42), uint8(5), uint8(16), uint8(0))
	f.Add(int64(1<<53-1), int64(epoch), uint8(31), uint8(6), uint8(16), uint8(3))
	f.Add(int64(1<<53), int64(epoch), uint8(39), uint8(6), uint8(8), uint8(1))
	f.Fuzz(func(t *testing.T, id, epoch int64, timeBits, workerBits, sequenceBits, unit uint8) {
		l := snowflake.Layout{Epoch: epoch, TimeBits: int(timeBits), WorkerBits: int(workerBits), SequenceBits: int(sequenceBits)}
		l = l.In(snowflake.Units()[int(unit)%len(snowflake.Units())])
		if l.Validate() != nil {
			return
		}
		p, err := l.Decode(id)
		if err != nil {
			if !errors.Is(err, snowflake.ErrNotAnID) || id > 0 && id>>l.Bits() == 0 {
				t.Fatalf("%+v: %d is refused: %v", l, id, err)
			}
			return
		}
		if l.Compose(p) != id || id <= 0 || p.UnixMS < l.Epoch || p.UnixMS >= l.End() || (p.UnixMS-l.Epoch)%l.Unit() != 0 ||
			p.Worker < 0 || p.Worker >= l.Workers() || p.Sequence < 0 || p.Sequence >= l.PerUnit() {
			t.Fatalf("%+v: %d is decoded to %+v, which is composed to %d", l, id, p, l.Compose(p))
		}
	})
}

func TestLayoutCheckLife(t *testing.T) {
	l := snowflake.DefaultLayout()
	year := 365 * 24 * time.Hour.Milliseconds()
	for now, refused := range map[int64]bool{0: false, l.End() - year: false, l.End() - year + 1: true, l.End() + 1: true} {
		if err := l.CheckLife(now); (err != nil) != refused || refused && !strings.Contains(err.Error(), "2080-07-10T17:30:30.209Z") {
			t.Errorf("at %d: %v", now, err)
		}
	}
}

// TestLayoutRecord: the form in which an installation's record keeps the layout, and how another one is refused.
func TestLayoutRecord(t *testing.T) {
	l := snowflake.DefaultLayout()
	for want, l := range map[string]snowflake.Layout{
		`{"epoch":1288834974657,"time_bits":41,"worker_bits":10,"sequence_bits":12}`:                l,
		`{"epoch":1288834974657,"time_bits":41,"worker_bits":10,"sequence_bits":12,"unit_ms":1000}`: l.In(time.Second),
	} {
		record, err := json.Marshal(l)
		if err != nil || string(record) != want {
			t.Errorf("%+v is written as %s, want %s", l, record, want)
		}
		var again snowflake.Layout
		if err := json.Unmarshal(record, &again); err != nil || again != l {
			t.Errorf("%s: read as %+v, %v", record, again, err)
		}
	}
	const want = "the number of milliseconds in a unit of time (--time-unit) is 1 there and 1000 here"
	if got := l.Differences(l.In(time.Second)); len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
}
