package snowflake

import (
	"errors"
	"fmt"
	"math"
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

// idBits is how many bits of an int64 carry an ID: all but the sign.
const idBits = 63

// Layout says what the bits of an ID mean; the package comment draws it. A
// layout is for life: IDs of two layouts may be the same.
type Layout struct {
	Epoch        int64 `json:"epoch"` // the first millisecond, in Unix ms; not negative
	TimeBits     int   `json:"time_bits"`
	WorkerBits   int   `json:"worker_bits"`
	SequenceBits int   `json:"sequence_bits"`
}

// DefaultLayout returns the layout of Leaf and Twitter.
func DefaultLayout() Layout {
	return Layout{DefaultEpoch, DefaultTimeBits, DefaultWorkerBits, DefaultSequenceBits}
}

// Parts are what an ID is made of.
type Parts struct {
	UnixMS   int64
	Worker   int64
	Sequence int64
}

// Validate returns an error if no generator can work with the layout. The widths must be 63
// together, with at least 30 for the time (12 days), 1 for the worker and 1 for the sequence.
// The last millisecond must be before the year 10000, which the text of a time cannot express.
func (l Layout) Validate() error {
	const leastTimeBits = 30
	switch {
	case l.TimeBits < leastTimeBits || l.WorkerBits < 1 || l.SequenceBits < 1 || max(l.TimeBits, l.WorkerBits, l.SequenceBits) > idBits:
		return fmt.Errorf("a layout needs at least %d bits of time, 1 of worker and 1 of sequence; this has %d, %d and %d",
			leastTimeBits, l.TimeBits, l.WorkerBits, l.SequenceBits)
	case l.TimeBits+l.WorkerBits+l.SequenceBits != idBits:
		return fmt.Errorf("the bits of a layout are %d together, not %d: %d of time, %d of worker, %d of sequence",
			l.TimeBits+l.WorkerBits+l.SequenceBits, idBits, l.TimeBits, l.WorkerBits, l.SequenceBits)
	case l.Epoch < 0:
		return errors.New("the epoch of a layout is not before 1970")
	case l.Epoch > math.MaxInt64-1<<l.TimeBits || time.UnixMilli(l.End()).Year() > 9999:
		return errors.New("the layout ends after the year 9999: give it an earlier epoch, or fewer bits of time")
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
	add("the number of time bits", int64(l.TimeBits), int64(want.TimeBits))
	add("the number of worker bits (--worker-bits)", int64(l.WorkerBits), int64(want.WorkerBits))
	add("the number of sequence bits (--sequence-bits)", int64(l.SequenceBits), int64(want.SequenceBits))
	return d
}

// End is the first millisecond, in Unix ms, that the layout cannot express.
func (l Layout) End() int64 { return l.Epoch + 1<<l.TimeBits }

// Workers is how many workers there are: they are numbered from 0.
func (l Layout) Workers() int64 { return 1 << l.WorkerBits }

// PerMillisecond is how many IDs a worker can issue in a millisecond.
func (l Layout) PerMillisecond() int64 { return 1 << l.SequenceBits }

// Compose makes the ID of parts, which must be within the layout.
func (l Layout) Compose(p Parts) int64 {
	return (p.UnixMS-l.Epoch)<<(l.WorkerBits+l.SequenceBits) | p.Worker<<l.SequenceBits | p.Sequence
}

// Decode takes an ID apart. It refuses, with [ErrNotAnID], what no generator can have made: a
// number that is not positive, and a time after latest, which is in Unix ms.
func (l Layout) Decode(id, latest int64) (Parts, error) {
	if id <= 0 {
		return Parts{}, fmt.Errorf("%w: it is not positive, as all IDs are", ErrNotAnID)
	}
	p := Parts{
		UnixMS:   id>>(l.WorkerBits+l.SequenceBits) + l.Epoch,
		Worker:   id >> l.SequenceBits & (l.Workers() - 1),
		Sequence: id & (l.PerMillisecond() - 1),
	}
	if p.UnixMS > latest {
		return Parts{}, fmt.Errorf("%w: its time would be %s, in the future", ErrNotAnID, text(p.UnixMS))
	}
	return p, nil
}

// TimeFormat is RFC 3339 with milliseconds, the form of an ID's time.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"
