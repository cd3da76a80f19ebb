package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/snowflake"
)

// workerFlags say how snowflakes are laid out and which workers may be taken.
type workerFlags struct {
	id, span, datacenter string
	datacenterBits       int
	workerBits           int
	sequenceBits         int
	epoch                int64
}

func (f *workerFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.id, "worker-id", "", "take exactly this worker `NUMBER` for snowflakes (default any that is free)")
	fs.StringVar(&f.span, "worker-range", "", "take one of these workers, `LO-HI`, or just this one, `LO`")
	fs.StringVar(&f.datacenter, "datacenter", "", "take one of this data centre's workers: the upper bits of a worker are this `NUMBER`")
	fs.IntVar(&f.datacenterBits, "datacenter-bits", defaultDatacenterBits, "`BITS` of a worker for the data centre, with --datacenter")
	fs.IntVar(&f.workerBits, "worker-bits", snowflake.DefaultWorkerBits, "`BITS` of a snowflake for the worker; an installation has one layout for life")
	fs.IntVar(&f.sequenceBits, "sequence-bits", snowflake.DefaultSequenceBits, "`BITS` of a snowflake for the sequence number; the time has the rest of 63")
	fs.Int64Var(&f.epoch, "epoch", snowflake.DefaultEpoch, "first `MILLISECOND` of snowflakes, since 1970; an installation has one for life")
	group(fs, groupSnowflakes, "worker-id", "worker-range", "datacenter", "datacenter-bits", "worker-bits", "sequence-bits", "epoch")
}

// defaultDatacenterBits are Twitter's: 32 data centres of 32 workers.
const defaultDatacenterBits = 5

func (f *workerFlags) check() error {
	if err := within("epoch", f.epoch, 0, time.Now().UnixMilli()); err != nil {
		return err
	}
	if err := f.layout().Validate(); err != nil {
		return usagef("--worker-bits, --sequence-bits and --epoch: %w", err)
	}
	_, _, err := f.workers()
	return err
}

// layout is the layout of snowflakes.
func (f *workerFlags) layout() snowflake.Layout {
	const bits = 63 // of an ID
	return snowflake.Layout{
		Epoch: f.epoch, TimeBits: bits - f.workerBits - f.sequenceBits, WorkerBits: f.workerBits, SequenceBits: f.sequenceBits,
	}
}

// workers returns the first and the last worker that the generator may take.
func (f *workerFlags) workers() (first, last int64, err error) {
	first, last = 0, f.layout().Workers()-1
	if f.datacenter == "" && f.datacenterBits != defaultDatacenterBits {
		return 0, 0, usagef("--datacenter-bits without --datacenter: say which data centre this is")
	}
	if f.datacenter != "" {
		if f.datacenterBits < 1 || f.datacenterBits > f.workerBits {
			return 0, 0, usagef("--datacenter-bits is %d, not from 1 to %d, the bits of a worker", f.datacenterBits, f.workerBits)
		}
		most := int64(1)<<f.datacenterBits - 1
		n, err := strconv.ParseInt(f.datacenter, 10, 64)
		if err != nil || n < 0 || n > most {
			return 0, 0, usagef("--datacenter is %q: want a number from 0 to %d", f.datacenter, most)
		}
		each := int64(1) << (f.workerBits - f.datacenterBits)
		first, last = n*each, n*each+each-1
	}
	flag, value := "worker-range", f.span
	lo, hi, ok := strings.Cut(value, "-")
	if !ok { // a range of one
		hi = lo
	}
	switch {
	case f.id != "" && f.span != "":
		return 0, 0, usagef("--worker-id and --worker-range: give one of them")
	case f.id != "":
		flag, value = "worker-id", f.id
		lo, hi = value, value
	case f.span == "":
		return first, last, nil
	}
	from, err1 := strconv.ParseInt(lo, 10, 64)
	to, err2 := strconv.ParseInt(hi, 10, 64)
	if err1 != nil || err2 != nil || from < first || to > last || from > to {
		return 0, 0, usagef("--%s is %q: want a number from %d to %d, or two such as %d-%d", flag, value, first, last, first, min(first+7, last))
	}
	return from, to, nil
}
