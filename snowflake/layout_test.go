package snowflake_test

import (
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
		"since 1970":            {snowflake.Layout{Epoch: 0, TimeBits: 41, WorkerBits: 10, SequenceBits: 12}, ""},
		"least time":            {snowflake.Layout{TimeBits: 30, WorkerBits: 1, SequenceBits: 32}, ""},
		"many workers":          {snowflake.Layout{TimeBits: 41, WorkerBits: 21, SequenceBits: 1}, ""},
		"until 9999":            {snowflake.Layout{Epoch: endOf9999 - 1<<41 - 1, TimeBits: 41, WorkerBits: 10, SequenceBits: 12}, ""},
		"until 10000":           {snowflake.Layout{Epoch: endOf9999 - 1<<41, TimeBits: 41, WorkerBits: 10, SequenceBits: 12}, "after the year 9999"},
		"most time":             {snowflake.Layout{TimeBits: 47, WorkerBits: 4, SequenceBits: 12}, ""},
		"too much time":         {snowflake.Layout{TimeBits: 48, WorkerBits: 3, SequenceBits: 12}, "after the year 9999"},
		"all time":              {snowflake.Layout{TimeBits: 61, WorkerBits: 1, SequenceBits: 1}, "after the year 9999"},
		"too little time":       {snowflake.Layout{TimeBits: 29, WorkerBits: 2, SequenceBits: 32}, "at least 30"},
		"no worker":             {snowflake.Layout{TimeBits: 41, WorkerBits: 0, SequenceBits: 22}, "1 of worker"},
		"no sequence":           {snowflake.Layout{TimeBits: 41, WorkerBits: 22, SequenceBits: 0}, "1 of sequence"},
		"one bit less":          {snowflake.Layout{TimeBits: 41, WorkerBits: 10, SequenceBits: 11}, "62 together"},
		"one bit more":          {snowflake.Layout{TimeBits: 41, WorkerBits: 10, SequenceBits: 13}, "64 together"},
		"negative time":         {snowflake.Layout{TimeBits: -1, WorkerBits: 32, SequenceBits: 32}, "at least 30"},
		"negative worker":       {snowflake.Layout{TimeBits: 41, WorkerBits: -1, SequenceBits: 23}, "1 of worker"},
		"negative sequence":     {snowflake.Layout{TimeBits: 41, WorkerBits: 23, SequenceBits: -1}, "1 of sequence"},
		"nothing":               {snowflake.Layout{}, "at least 30"},
		"epoch before 1970":     {snowflake.Layout{Epoch: -1, TimeBits: 41, WorkerBits: 10, SequenceBits: 12}, "before 1970"},
		"no end":                {snowflake.Layout{Epoch: math.MaxInt64, TimeBits: 41, WorkerBits: 10, SequenceBits: 12}, "after the year 9999"},
		"widths that wrap":      {snowflake.Layout{TimeBits: math.MaxInt, WorkerBits: math.MaxInt, SequenceBits: 65}, "bits"},
		"epoch in microseconds": {snowflake.Layout{Epoch: snowflake.DefaultEpoch * 1000, TimeBits: 41, WorkerBits: 10, SequenceBits: 12}, "after the year 9999"},
	} {
		err := c.layout.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestLayoutCorners(t *testing.T) {
	for _, l := range []snowflake.Layout{
		snowflake.DefaultLayout(),
		{Epoch: 0, TimeBits: 41, WorkerBits: 10, SequenceBits: 12},
		{Epoch: 1_577_836_800_000, TimeBits: 42, WorkerBits: 5, SequenceBits: 16},
		{Epoch: 7, TimeBits: 30, WorkerBits: 1, SequenceBits: 32},
		{Epoch: 0, TimeBits: 47, WorkerBits: 15, SequenceBits: 1},
	} {
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}
		seen := make(map[int64]snowflake.Parts)
		for _, ms := range []int64{l.Epoch, l.Epoch + 1, l.End() - 1} {
			for _, worker := range []int64{0, 1, l.Workers() - 1} {
				for _, sequence := range []int64{0, 1, l.PerMillisecond() - 1} {
					p := snowflake.Parts{UnixMS: ms, Worker: worker, Sequence: sequence}
					id := l.Compose(p)
					if other, ok := seen[id]; ok && other != p {
						t.Errorf("%+v: %+v and %+v are both %d", l, other, p, id)
					}
					seen[id] = p
					if id == 0 && p == (snowflake.Parts{UnixMS: l.Epoch}) {
						continue // the one that is never issued
					}
					if got, err := l.Decode(id, ms); got != p || err != nil {
						t.Errorf("%+v: %+v is composed to %d and decoded to %+v, %v", l, p, id, got, err)
					}
				}
			}
		}
		last := snowflake.Parts{UnixMS: l.End() - 1, Worker: l.Workers() - 1, Sequence: l.PerMillisecond() - 1}
		if id := l.Compose(last); id != math.MaxInt64 {
			t.Errorf("%+v: the last ID is %d", l, id)
		}
	}
}

func TestLayoutEnd(t *testing.T) {
	l := snowflake.DefaultLayout()
	if end := time.UnixMilli(l.End()).UTC().Format(snowflake.TimeFormat); end != "2080-07-10T17:30:30.209Z" {
		t.Errorf("End = %s", end)
	}
	if l.Workers() != 1024 || l.PerMillisecond() != 4096 {
		t.Errorf("%d workers, %d a ms", l.Workers(), l.PerMillisecond())
	}
}

// TestLayoutDecode: IDs that were taken apart by hand.
func TestLayoutDecode(t *testing.T) {
	for id, want := range map[int64]snowflake.Parts{
		// 1541815603606036480 = 367597485448·2²² + 378·2¹² + 0, a tweet of
		// 2022-06-28; 1288834974657 + 367597485448 = 1656432460105.
		1_541_815_603_606_036_480: {UnixMS: 1_656_432_460_105, Worker: 378},
		// A day and a ms after the epoch: 86400001·2²² + 1023·2¹² + 4095.
		362_387_873_988_607: {UnixMS: 1_288_921_374_658, Worker: 1023, Sequence: 4095},
		1:                   {UnixMS: 1_288_834_974_657, Sequence: 1},
	} {
		if p, err := snowflake.DefaultLayout().Decode(id, want.UnixMS); p != want || err != nil {
			t.Errorf("Decode(%d) = %+v, %v; want %+v", id, p, err, want)
		}
	}
}

func TestLayoutDecodeRefuses(t *testing.T) {
	const now = 1_767_225_600_000 // 2026
	l := snowflake.DefaultLayout()
	for id, want := range map[int64]string{
		0: "not positive", -1: "not positive", math.MinInt64: "not positive",
		l.Compose(snowflake.Parts{UnixMS: now + 1}): "2026-01-01T00:00:00.001Z, in the future",
		math.MaxInt64: "2080-07-10T17:30:30.208Z, in the future",
	} {
		p, err := l.Decode(id, now)
		if p != (snowflake.Parts{}) || !errors.Is(err, snowflake.ErrNotAnID) || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%d) = %+v, %v; want %q", id, p, err, want)
		}
	}
	if _, err := l.Decode(l.Compose(snowflake.Parts{UnixMS: now, Worker: 1023, Sequence: 4095}), now); err != nil {
		t.Errorf("an ID of this millisecond: %v", err)
	}
}

// FuzzDecode: what is accepted is composed to the same ID; what is refused is not
// positive or lies in the future.
func FuzzDecode(f *testing.F) {
	const epoch = snowflake.DefaultEpoch
	f.Add(int64(1_541_815_603_606_036_480), int64(1_656_432_460_105), int64(epoch), uint8(41), uint8(10))
	f.Add(int64(1_541_815_603_606_036_480), int64(1_656_432_460_104), int64(epoch), uint8(41), uint8(10))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(0), uint8(30), uint8(1))
	f.Add(int64(math.MinInt64), int64(math.MinInt64), int64(0), uint8(47), uint8(15))
	f.Add(int64(0), int64(0), int64(0), uint8(42), uint8(5))
	f.Fuzz(func(t *testing.T, id, latest, epoch int64, timeBits, workerBits uint8) {
		l := snowflake.Layout{Epoch: epoch, TimeBits: int(timeBits), WorkerBits: int(workerBits)}
		l.SequenceBits = 63 - l.TimeBits - l.WorkerBits
		if l.Validate() != nil {
			return
		}
		p, err := l.Decode(id, latest)
		if err != nil {
			future := l.Compose(snowflake.Parts{UnixMS: latest + 1})
			if !errors.Is(err, snowflake.ErrNotAnID) || id > 0 && l.Epoch <= latest && latest < l.End()-1 && id < future {
				t.Fatalf("%+v: %d is refused at %d: %v", l, id, latest, err)
			}
			return
		}
		if l.Compose(p) != id || id <= 0 || p.UnixMS > latest || p.UnixMS < l.Epoch || p.UnixMS >= l.End() ||
			p.Worker < 0 || p.Worker >= l.Workers() || p.Sequence < 0 || p.Sequence >= l.PerMillisecond() {
			t.Fatalf("%+v: %d is decoded to %+v, which is composed to %d", l, id, p, l.Compose(p))
		}
	})
}
