package main

import (
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/snowflake"
)

// workerFlags say which workers a generator may take.
type workerFlags struct {
	id, span, datacenter string
	datacenterBits       int
}

// defaultDatacenterBits are Twitter's: 32 data centres of 32 workers.
const defaultDatacenterBits = 5

func (f *workerFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.id, "worker-id", "", "take exactly this worker `NUMBER` for snowflakes (default any that is free)")
	fs.StringVar(&f.span, "worker-range", "", "take one of the workers `LO-HI`, for example 0-99, or exactly one, "+
		"for example 5")
	fs.StringVar(&f.datacenter, "datacenter", "", "take one of this data centre's workers: the upper bits of a "+
		"worker are this `NUMBER`")
	fs.IntVar(&f.datacenterBits, "datacenter-bits", defaultDatacenterBits,
		"`BITS` of a worker for the data centre, with --datacenter")
}

// workers returns the first and the last worker that the generator may take.
func (f *workerFlags) workers(l snowflake.Layout) (first, last int64, err error) {
	first, last = 0, l.Workers()-1
	if f.datacenter == "" && f.datacenterBits != defaultDatacenterBits {
		return 0, 0, cli.Usagef("--datacenter-bits without --datacenter: say which data centre this is")
	}
	if f.datacenter != "" {
		if f.datacenterBits < 1 || f.datacenterBits > l.WorkerBits {
			return 0, 0, cli.Usagef("--datacenter-bits is %d: want 1 to %d, the bits of a worker", f.datacenterBits,
				l.WorkerBits)
		}
		n, err := strconv.ParseInt(f.datacenter, 10, 64)
		if most := int64(1)<<f.datacenterBits - 1; err != nil || n < 0 || n > most {
			return 0, 0, cli.Usagef("--datacenter is %q: want a number from 0 to %d", f.datacenter, most)
		}
		each := int64(1) << (l.WorkerBits - f.datacenterBits)
		first, last = n*each, n*each+each-1
	}
	flag, value := "worker-range", f.span
	lo, hi, ok := strings.Cut(value, "-")
	switch {
	case f.id != "" && f.span != "":
		return 0, 0, cli.Usagef("--worker-id and --worker-range: give one of them")
	case f.id != "":
		flag, value = "worker-id", f.id
		lo, hi = value, value
	case f.span == "":
		return first, last, nil
	case !ok: // a range of one
		hi = lo
	}
	from, err1 := strconv.ParseInt(lo, 10, 64)
	to, err2 := strconv.ParseInt(hi, 10, 64)
	if err1 != nil || err2 != nil || from < first || to > last || from > to {
		return 0, 0, cli.Usagef("--%s is %q: want a number from %d to %d, or two such as %d-%d", flag, value, first,
			last, first, min(first+7, last))
	}
	return from, to, nil
}
