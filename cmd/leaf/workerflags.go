package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// workerFlags say how snowflakes are laid out and which workers may be taken.
type workerFlags struct {
	layoutFlags
	id, span, datacenter string
	datacenterBits       int
}

func (f *workerFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.id, "worker-id", "", "take exactly this worker `NUMBER` for snowflakes (default any that is free)")
	fs.StringVar(&f.span, "worker-range", "", "take one of the workers `LO-HI`, for example 0-99, or exactly one, for example 5")
	fs.StringVar(&f.datacenter, "datacenter", "", "take one of this data centre's workers: the upper bits of a worker are this `NUMBER`")
	fs.IntVar(&f.datacenterBits, "datacenter-bits", defaultDatacenterBits, "`BITS` of a worker for the data centre, with --datacenter")
	f.layoutFlags.register(cmd)
	group(fs, groupSnowflakes, "worker-id", "worker-range", "datacenter", "datacenter-bits", "id-bits", "time-unit", "worker-bits", "sequence-bits", "epoch")
}

// defaultDatacenterBits are Twitter's: 32 data centres of 32 workers.
const defaultDatacenterBits = 5

func (f *workerFlags) check() error {
	if err := f.layoutFlags.check(); err != nil {
		return err
	}
	_, _, err := f.workers()
	return err
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
