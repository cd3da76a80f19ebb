// Command bench prints how fast Leafbus is on this machine, each figure beside
// that of the least that could do the job, measured in the same run:
//
//	go run ./tests/bench
//
// Server, generator and client share one process and talk over loopback, and a
// MariaDB server runs beside it, so the figures are those of the machine as a
// whole. They show what Leafbus adds to NATS and to the database, not what a
// cluster can do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/leafbus/leafbus/internal/collector"
)

// scenarios are the tables, in the order in which they are printed.
var scenarios = []struct {
	name string // for -run
	run  func(*lab) *table
}{
	{"nats", overNATS},
	{"http", overHTTP},
	{"client", goClient},
	{"strict", strictTags},
	{"mysql", refillsMySQL},
	{"tags", manyTags},
	{"opaque", opaqueTags},
	{"overload", overload},
}

func main() {
	collector.Tune() // as in `leaf serve`; what is compared with it is in the same process and has the same
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run prints the tables to w. By default it takes some minutes: many short rounds rather than a few long ones, so that
// what else the machine does in between weighs on baseline and Leafbus alike.
func run(ctx context.Context, args []string, w io.Writer) error {
	p, err := parsePlan(args)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s · %s %s/%s · %d cores · rounds: %d of %v\n\n",
		strings.Join(append([]string{"go run ./tests/bench"}, args...), " "),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), p.rounds, p.duration)
	fmt.Fprintln(w, "Baseline and Leafbus take turns in every round. Figures are medians of the rounds.")

	for _, s := range scenarios {
		if !p.only.MatchString(s.name) {
			continue
		}
		t, err := inLab(ctx, p, s.run)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "\n%s", t); err != nil {
			return err
		}
	}
	return nil
}

// plan says how often and how long everything is measured.
type plan struct {
	rounds   int
	duration time.Duration
	tags     int // where there are many
	only     *regexp.Regexp
}

// parsePlan reads the command line.
func parsePlan(args []string) (plan, error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	var p plan
	fs.DurationVar(&p.duration, "duration", 200*time.Millisecond, "how long each measurement takes in each round")
	fs.IntVar(&p.rounds, "rounds", 21, "how often everything is measured")
	fs.IntVar(&p.tags, "tags", 10_000, "how many tags there are where many are measured, each round")
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	only := fs.String("run", ".*", "print only the tables whose name matches this regular expression as a whole: "+
		strings.Join(names, ", "))
	if err := fs.Parse(args); err != nil {
		return plan{}, err
	}
	if fs.NArg() > 0 || p.rounds < 1 || p.duration <= 0 || p.tags < 1 {
		return plan{}, errors.New("want no arguments, -rounds and -tags from 1 and -duration above zero")
	}
	var err error
	if p.only, err = regexp.Compile("^(" + *only + ")$"); err != nil {
		return plan{}, fmt.Errorf("-run: %w", err)
	}
	return p, nil
}
