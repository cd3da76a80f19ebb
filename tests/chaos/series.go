package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leafbus/leafbus/tests/chaos/programs"
)

// knownWithin is how long a fault that is known to break a promise may need.
const knownWithin = 5 * time.Minute

// outcome is what a run of a series found.
type outcome struct {
	name, wanted string
	found        string // the check that found it; empty: none did
	after        time.Duration
	wrong        string // why it is not as it should be; empty: it is
}

// runKnown runs each fault that is known to break a promise, alone. It returns the exit status.
func runKnown(ctx context.Context, cfg config) int {
	var all []outcome
	for _, k := range known {
		if !k.fits(cfg) || ctx.Err() != nil {
			continue
		}
		one := cfg
		one.faults, one.length = []string{k.fault}, knownWithin
		o := one.search(ctx, k.checks)
		if o.name = k.fault; o.found == "" && o.wrong == "" && !k.rare {
			o.wrong = "healed: remove it from known.go, and give the fault a weight"
		}
		all = append(all, o)
	}
	return report(os.Stdout, "KNOWN", all)
}

// runBroken breaks the product on purpose, once with each breakage or with one. It returns the exit status.
func runBroken(ctx context.Context, cfg config) int {
	var all []outcome
	for _, b := range breakages {
		if cfg.broken != "all" && cfg.broken != b.name || !slices.Contains(b.stores, cfg.store) || ctx.Err() != nil {
			continue
		}
		one := cfg
		one.broken = b.name
		for _, e := range b.edits {
			one.edits = append(one.edits, programs.Edit(e))
		}
		if len(cfg.faults) == 0 {
			one.faults = b.faults
		}
		o := one.search(ctx, b.checks)
		if o.name = b.name; o.found == "" && o.wrong == "" {
			o.wrong = "not found"
		}
		all = append(all, o)
	}
	return report(os.Stdout, "BROKEN ON PURPOSE", all)
}

// search runs an installation until one of these checks finds a violation.
func (cfg config) search(ctx context.Context, checks []string) (o outcome) {
	o.wanted = strings.Join(checks, ", ")
	if _, err := cfg.chosen(); err != nil {
		o.wrong = err.Error()
		return o
	}
	w := play(ctx, cfg)
	o.after = w.lasted
	switch v := w.violation; {
	case v != nil:
		o.found = v.Check
		if !slices.Contains(checks, v.Check) {
			o.wrong = "another check found it: " + v.Text
		}
	case w.err != nil && !errors.Is(w.err, errViolated):
		o.wrong = w.err.Error()
	}
	if v := w.violation; v != nil {
		fmt.Fprintf(os.Stderr, "%8v  found by %q: %s\n", o.after.Round(time.Second), v.Check, cut(v.Text, widest))
	}
	if o.found == "" {
		w.print(os.Stderr)
	}
	if err := w.tidy(cfg.keep || o.wrong != "" && ctx.Err() == nil); err != nil && o.wrong == "" {
		o.wrong = err.Error()
	}
	return o
}

// report prints the table of a series, and returns the exit status.
func report(out io.Writer, title string, all []outcome) (status int) {
	if len(all) == 0 {
		fmt.Fprintln(out, "nothing in the list fits this -store and these -servers")
		return 0
	}
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tab, "%s\tchecks\tfound by\tafter\t\n", title)
	for _, o := range all {
		found := o.found
		if found == "" {
			found = "-"
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%.1f min\t%s\n",
			o.name, o.wanted, found, o.after.Minutes(), cut(firstLine(o.wrong), 100))
		if o.wrong != "" {
			status = 1
		}
	}
	tab.Flush()
	return status
}

// printFaults writes what the flags -faults, -known and -broken can name.
func printFaults(out io.Writer) {
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(tab, "FAULT\tonly with\t\n")
	for _, f := range faults {
		only := strings.TrimSpace(f.store + " " + f.servers)
		if f.weight == 0 {
			only = strings.TrimSpace(only + " by its name")
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\n", f.name, only, f.about)
	}
	fmt.Fprint(tab, "\nKNOWN TO BREAK A PROMISE\tchecks\t\n")
	for _, k := range known {
		fmt.Fprintf(tab, "%s\t%s\t%s\n", k.fault, strings.Join(k.checks, ", "), k.why)
	}
	fmt.Fprint(tab, "\nBROKEN ON PURPOSE\tchecks\t\n")
	for _, b := range breakages {
		fmt.Fprintf(tab, "%s\t%s\t%s\n", b.name, strings.Join(b.checks, ", "), b.why)
	}
	tab.Flush()
}
