package main

import (
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/snowflake"
)

// layoutFlags say what the bits of a snowflake mean.
type layoutFlags struct {
	idBits, workerBits, sequenceBits int
	sequence                         *pflag.Flag // of sequenceBits
	unit                             time.Duration
	epoch                            int64
}

// defaultIDBits are all bits of a positive int64.
const defaultIDBits = snowflake.DefaultTimeBits + snowflake.DefaultWorkerBits + snowflake.DefaultSequenceBits

func (f *layoutFlags) register(fs *pflag.FlagSet) {
	fs.IntVar(&f.idBits, "id-bits", defaultIDBits, "`BITS` of a snowflake, 53 for JavaScript; the time has the rest")
	fs.IntVar(&f.workerBits, "worker-bits", snowflake.DefaultWorkerBits, "`BITS` for the worker")
	fs.IntVar(&f.sequenceBits, "sequence-bits", snowflake.DefaultSequenceBits,
		"`BITS` for the sequence number, fewer by default if the time would end before 2027")
	f.sequence = fs.Lookup("sequence-bits")
	fs.DurationVar(&f.unit, "time-unit", time.Millisecond, "`UNIT` of a snowflake's time: 1ms, 10ms, 100ms or 1s")
	cli.Number(fs, &f.epoch, "epoch", snowflake.DefaultEpoch, 0, time.Now().UnixMilli(),
		"first `MILLISECOND` of snowflakes, since 1970")
}

// oldest is the beginning of 2027, in Unix ms. No installation has a layout that ended before, because a new one must
// last for a year. So the default of --sequence-bits may depend on it.
const oldest = 1798761600000

// layout returns the layout. It refuses one that no generator can work with.
func (f *layoutFlags) layout() (snowflake.Layout, error) {
	if !slices.Contains(snowflake.Units(), f.unit) {
		return snowflake.Layout{}, cli.Usagef("--time-unit is %v: want 1ms, 10ms, 100ms or 1s", f.unit)
	}
	with := func(sequence int) snowflake.Layout {
		return snowflake.Layout{
			Epoch: f.epoch, TimeBits: f.idBits - f.workerBits - sequence, WorkerBits: f.workerBits,
			SequenceBits: sequence,
		}.In(f.unit)
	}
	l := with(f.sequenceBits)
	if !f.sequence.Changed && l.TimeBits > 0 && l.End() < oldest {
		l = with(f.idBits - f.workerBits - timeBits(f.unit))
	}
	if err := l.Validate(); err != nil {
		return l, cli.Usagef("--id-bits, --worker-bits, --sequence-bits, --time-unit and --epoch: %w", err)
	}
	return l, nil
}

// timeBits are enough for 69 years or more, counted in these units: as many as the default layout has for milliseconds,
// and fewer for longer ones.
func timeBits(unit time.Duration) int {
	bits := snowflake.DefaultTimeBits
	for ; unit > time.Millisecond; unit /= 10 {
		bits -= 3
	}
	return bits
}
