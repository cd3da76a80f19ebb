package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/snowflake"
)

// workerFlags say which workers a generator may take.
type workerFlags struct {
	id, span string
}

func (f *workerFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.id, "worker-id", "", "take exactly this worker `NUMBER` for snowflakes (default any that is free)")
	fs.StringVar(&f.span, "worker-range", "", "take one of the workers `LO-HI`, for example 0-99, or exactly one, "+
		"for example 5")
	cli.Settings(fs, cli.GroupSnowflakes, "worker-id", "worker-range")
}

// workers returns the first and the last worker that the generator may take.
func (f *workerFlags) workers(l snowflake.Layout) (first, last int64, err error) {
	flag, value, most := "worker-range", f.span, l.Workers()-1
	lo, hi, ok := strings.Cut(value, "-")
	switch {
	case f.id != "" && f.span != "":
		return 0, 0, cli.Usagef("--worker-id and --worker-range: give one of them")
	case f.id != "":
		flag, value = "worker-id", f.id
		lo, hi = value, value
	case f.span == "":
		return 0, most, nil
	case !ok: // a range of one
		hi = lo
	}
	from, err1 := strconv.ParseInt(lo, 10, 64)
	to, err2 := strconv.ParseInt(hi, 10, 64)
	if err1 != nil || err2 != nil || from < 0 || to > most || from > to {
		return 0, 0, cli.Usagef("--%s is %q: want a number from 0 to %d, or two such as 0-%d", flag, value, most, min(7, most))
	}
	return from, to, nil
}

// stateOf is a word for what a worker is doing.
func stateOf(w admin.Worker) string {
	switch {
	case w.Running:
		return "running"
	case time.Now().After(w.ReservedUntil):
		return "free"
	}
	return "away"
}
