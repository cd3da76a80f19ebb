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

// scenarios are the tables, in the order in which they are printed. A scenario has this many
// times the plan's rounds, and each of its measurements takes this many times the plan's duration.
var scenarios = []struct {
	name             string // for -run
	run              func(*lab) *table
	rounds, duration float64
}{
	{"nats", overNATS, 1, 1},
	{"http", overHTTP, 1, 1},
	// What metrics cost is far less than what one measurement differs from the next by. Most of
	// what disturbs the machine lasts for all of a round if rounds are short.
	{"metrics", metricsCost, 10, 0.1},
	{"metrics-alone", metricsAlone, 0.5, 1},
	{"take", takes, 1, 1},
	{"connections", connections, 1, 1},
	{"next", coalesced, 1, 1},
	{"pool", pools, 0.5, 1},
	{"bulk", bulks, 0.5, 1},
	{"inprocess", inProcess, 1, 1},
	// A measurement's ends, where a millisecond is not used up, must weigh little.
	{"snowflake", snowflakes, 0.2, 5},
	{"snowflake-layouts", layouts, 0.2, 5},
	{"refill", refills, 1, 1},
	{"refill-mysql", refillsMySQL, 1, 1},
	{"claims", claims, 1, 1},
	{"claims-lost", lostClaims, 1, 1},
	{"claims-first", firstUses, 0.2, 1},
	{"late", late, 0.25, 10},
	{"writes", writes, 1, 1},
	{"tags", manyTags, 0.2, 1},
	{"tags-first", firstUsesEmbedded, 1, 1},
	{"tags-kept", manyKept, 1, 1},
	{"opaque", opaqueTags, 1, 1},
	{"opaque-inprocess", opaqueInProcess, 1, 1},
	{"strict", strictTags, 0.5, 1},
	{"strict-next", strictNext, 0.5, 1},
	{"strict-mysql", strictMySQL, 0.5, 1},
	{"strict-counters", counters, 0.15, 5},
	{"strict-conflicts", conflicts, 0.25, 2},
	{"strict-far", farAway, 0.1, 5},
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

// run prints the tables to w. By default it takes about ten minutes: many short
// rounds rather than a few long ones, so that what else the machine does in
// between weighs on baseline and Leafbus alike.
func run(ctx context.Context, args []string, w io.Writer) error {
	p, err := parsePlan(args)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s · %s %s/%s · %d cores · rounds: %d of %v\n\n",
		strings.Join(append([]string{"go run ./tests/bench"}, args...), " "),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), p.rounds, p.duration)
	fmt.Fprintln(w, "Baseline and Leafbus take turns in every round. Figures are medians of the rounds;")
	fmt.Fprintln(w, "a ratio is the median of the rounds' own ratios.")

	for _, s := range scenarios {
		if !p.only.MatchString(s.name) {
			continue
		}
		scaled := p
		scaled.rounds = max(1, int(float64(p.rounds)*s.rounds))
		scaled.duration = time.Duration(float64(p.duration) * s.duration)
		t, err := inLab(ctx, scaled, s.run)
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
	tags     int    // where there are many
	ids      int64  // of a bulk
	folder   string // of the tags that are kept
	leaf     string // the program that is measured; empty: it is built
	only     *regexp.Regexp
}

// parsePlan reads the command line.
func parsePlan(args []string) (plan, error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	var p plan
	fs.DurationVar(&p.duration, "duration", 200*time.Millisecond, "how long each measurement takes in each round")
	fs.IntVar(&p.rounds, "rounds", 21, "how often everything is measured")
	fs.IntVar(&p.tags, "tags", 100_000, "how many tags there are where many are measured")
	fs.Int64Var(&p.ids, "ids", 100_000_000, "how many IDs a bulk has")
	fs.StringVar(&p.folder, "folder", "", "the folder of tags-kept, which is left as it is: another run measures its tags; default: a temporary folder")
	fs.StringVar(&p.leaf, "leaf", "", "the program that serves in tags-first and tags-kept, to compare two versions; default: it is built")
	only := fs.String("run", "", "print only the tables whose name begins with a match of this regular expression, for example next|pool; they are "+tableNames())
	quick := fs.Bool("quick", false, "one round of 100ms, 10,000 tags and 10,000,000 IDs: a look, not a measurement")
	if err := fs.Parse(args); err != nil {
		return plan{}, err
	}
	pattern, err := regexp.Compile("^(" + *only + ")")
	if err != nil {
		return plan{}, fmt.Errorf("-run: %w", err)
	}
	if *quick {
		p = plan{rounds: 1, duration: 100 * time.Millisecond, tags: 10_000, ids: 10_000_000}
	}
	if fs.NArg() > 0 || p.rounds < 1 || p.duration <= 0 || p.tags < 1 || p.ids < 1 {
		return plan{}, errors.New("want no arguments, -rounds, -tags and -ids from 1 and -duration above zero")
	}
	p.only = pattern
	return p, nil
}

// tableNames lists the names of all tables.
func tableNames() string {
	var all []string
	for _, s := range scenarios {
		all = append(all, s.name)
	}
	return strings.Join(all, ", ")
}
