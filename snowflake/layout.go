package snowflake

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// ErrNotAnID means that no generator of this layout can have made the number.
var ErrNotAnID = errors.New("not a snowflake of this installation")

// The default layout: Leaf's, which took over Twitter's epoch.
const (
	DefaultEpoch        = 1288834974657 // 2010-11-04T01:42:54.657Z, in Unix ms
	DefaultTimeBits     = 41
	DefaultWorkerBits   = 10
	DefaultSequenceBits = 12
)

// idBits is how many bits of an int64 can carry an ID: all but the sign.
const idBits = 63

// Layout says what the bits of an ID mean; the package comment draws it. A
// layout is for life: IDs of two layouts may be the same.
type Layout struct {
	Epoch        int64 `json:"epoch"`     // where the time begins, in Unix ms; not negative
	TimeBits     int   `json:"time_bits"` // of a time in units
	WorkerBits   int   `json:"worker_bits"`
	SequenceBits int   `json:"sequence_bits"`
	UnitMS       int64 `json:"unit_ms,omitempty"` // length of a unit; 0: a millisecond
}

// Units are the units in which a layout can count the time.
func Units() []time.Duration {
	return []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second}
}

// DefaultLayout returns the layout of Leaf and Twitter.
func DefaultLayout() Layout {
	return Layout{Epoch: DefaultEpoch, TimeBits: DefaultTimeBits, WorkerBits: DefaultWorkerBits,
		SequenceBits: DefaultSequenceBits}
}

// In returns the layout with a time that is counted in this unit, which must be one of [Units].
func (l Layout) In(unit time.Duration) Layout {
	l.UnitMS = 0
	if unit != time.Millisecond {
		l.UnitMS = unit.Milliseconds()
	}
	return l
}

// Parts are what an ID is made of.
type Parts struct {
	UnixMS   int64 // the beginning of a unit of time
	Worker   int64
	Sequence int64
}

// Validate returns an error if no generator can work with the layout. The widths must be at most 63
// together, with at least 2^30 ms for the time (12 days), 1 bit for the worker and 1 for the
// sequence. The last time must be before the year 10000, which the text of a time cannot express.
func (l Layout) Validate() error {
	const (
		leastLife    = 1 << 30 // ms
		mostTimeBits = 47      // 2^47 ms from 1970 on end in 6429
	)
	bits := l.TimeBits
	switch {
	case max(bits, l.WorkerBits, l.SequenceBits) > idBits || min(bits, l.WorkerBits, l.SequenceBits) < 1 ||
		bits <= mostTimeBits && l.Unit()<<bits < leastLife:
		return fmt.Errorf("a layout needs at least %d ms (12 days) of time, 1 bit of worker and 1 of sequence; this has %d "+
			"bits of %d ms, %d and %d",
			leastLife, bits, l.Unit(), l.WorkerBits, l.SequenceBits)
	case l.UnitMS == 1 || !slices.Contains(Units(), duration(l.Unit())):
		return fmt.Errorf("the time of a layout is counted in milliseconds (0), or in units of 10, 100 or 1000 ms, not of %d",
			l.UnitMS)
	case l.Bits() > idBits:
		return fmt.Errorf("the bits of a layout are %d together, more than %d: %d of time, %d of worker, %d of sequence",
			l.Bits(), idBits, bits, l.WorkerBits, l.SequenceBits)
	case l.Epoch < 0:
		return errors.New("the epoch of a layout is not before 1970")
	case bits > mostTimeBits || l.Epoch > math.MaxInt64-l.Unit()<<bits || time.UnixMilli(l.End()).Year() > 9999:
		return errors.New("the layout ends after the year 9999: give it an earlier epoch, or fewer bits of time")
	}
	return nil
}

// CheckLife returns an error if a new installation must not begin with the layout at the time now,
// in Unix ms: it would end within a year, or has ended.
func (l Layout) CheckLife(now int64) error {
	if l.End()-now < ending {
		return fmt.Errorf("a new layout of snowflakes must last for a year at least, and this one ends at %s: give the time "+
			"more bits (more --id-bits, or fewer --worker-bits or --sequence-bits), a longer --time-unit, or a later --epoch",
			text(l.End()))
	}
	return nil
}

// Differences names what is not the same in want.
func (l Layout) Differences(want Layout) []string {
	var d []string
	add := func(name string, has, wanted int64) {
		if has != wanted {
			d = append(d, fmt.Sprintf("%s is %d there and %d here", name, has, wanted))
		}
	}
	add("the epoch (--epoch)", l.Epoch, want.Epoch)
	add("the number of bits of an ID (--id-bits)", int64(l.Bits()), int64(want.Bits()))
	add("the number of milliseconds in a unit of time (--time-unit)", l.Unit(), want.Unit())
	add("the number of time bits", int64(l.TimeBits), int64(want.TimeBits))
	add("the number of worker bits (--worker-bits)", int64(l.WorkerBits), int64(want.WorkerBits))
	add("the number of sequence bits (--sequence-bits)", int64(l.SequenceBits), int64(want.SequenceBits))
	return d
}

// Bits is how many bits an ID has.
func (l Layout) Bits() int { return l.TimeBits + l.WorkerBits + l.SequenceBits }

// Unit is how long a unit of time is, in ms.
func (l Layout) Unit() int64 { return max(1, l.UnitMS) }

// End is the first millisecond, in Unix ms, that the layout cannot express.
func (l Layout) End() int64 { return l.Epoch + l.Unit()<<l.TimeBits }

// UnitOf returns the beginning of the unit of time that has the millisecond. Both are Unix ms.
// Before the epoch there are no units, and it returns the millisecond.
func (l Layout) UnitOf(ms int64) int64 {
	if ms < l.Epoch {
		return ms
	}
	return ms - (ms-l.Epoch)%l.Unit()
}

// UnitFrom returns the beginning of the first unit of time that begins at the millisecond or later.
// Both are Unix ms.
func (l Layout) UnitFrom(ms int64) int64 {
	begin := l.UnitOf(ms)
	if begin < ms {
		begin = min(begin, math.MaxInt64-l.UnitMS) + l.UnitMS
	}
	return begin
}

// Workers is how many workers there are: they are numbered from 0.
func (l Layout) Workers() int64 { return 1 << l.WorkerBits }

// PerUnit is how many IDs a worker can issue in a unit of time.
func (l Layout) PerUnit() int64 { return 1 << l.SequenceBits }

// Compose makes the ID of parts, which must be within the layout.
func (l Layout) Compose(p Parts) int64 {
	return (p.UnixMS-l.Epoch)/l.Unit()<<(l.WorkerBits+l.SequenceBits) | p.Worker<<l.SequenceBits | p.Sequence
}

// Decode takes an ID apart. It refuses, with [ErrNotAnID], a number that is not positive or has too
// many bits. It accepts times in the future, because the clock of the reader may be slow.
func (l Layout) Decode(id int64) (Parts, error) {
	if id <= 0 {
		return Parts{}, fmt.Errorf("%w: it is not positive, as all IDs are", ErrNotAnID)
	}
	if id>>l.Bits() != 0 {
		return Parts{}, fmt.Errorf("%w: it has more than %d bits, and no ID of this layout has", ErrNotAnID, l.Bits())
	}
	return Parts{
		UnixMS:   id>>(l.WorkerBits+l.SequenceBits)*l.Unit() + l.Epoch,
		Worker:   id >> l.SequenceBits & (l.Workers() - 1),
		Sequence: id & (l.PerUnit() - 1),
	}, nil
}

// TimeFormat is RFC 3339 with milliseconds, the form of an ID's time.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"
