package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/snowflake"
)

func newWorkersCmd() *cobra.Command {
	var f cli.Client
	cmd := f.Command(&cobra.Command{
		Use:   "workers",
		Short: "Show which generator holds which worker ID, and release one",
		Long: `Show which generator holds which worker ID of snowflakes, and until when.

A worker is running (its generator reports it), away (its generator is not heard, and
may come back), or free (its reservation is over, and any generator may take it).`,
		Example: `  leaf workers
  leaf workers --json
  leaf workers release 7    its generator is gone for good: do not wait for it`,
	}, func(s *cli.Session, _ []string) error {
		all, err := s.Admin.Workers(s.Context(), admin.WorkersRequest{})
		for page := all; err == nil && page.Next > 0; {
			page, err = s.Admin.Workers(s.Context(), admin.WorkersRequest{From: page.Next})
			all.Workers = append(all.Workers, page.Workers...)
		}
		if err != nil {
			return err
		}
		all.Next = 0
		return s.Print(all, func(w io.Writer) { printWorkers(w, all.Workers...) })
	})
	cmd.AddCommand(newWorkersReleaseCmd())
	return cmd
}

func printWorkers(to io.Writer, workers ...admin.Worker) {
	rows := []cli.Row{{"WORKER", "NODE", "STATE", "SINCE", "LAST REPORT", "RESERVED UNTIL"}}
	for _, w := range workers {
		rows = append(rows, cli.Row{w.Worker, w.Node, stateOf(w), w.Acquired, w.Reported, w.ReservedUntil})
	}
	cli.PrintTable(to, rows...)
}

func newWorkersReleaseCmd() *cobra.Command {
	var f cli.Client
	var worker int64
	var yes bool
	cmd := f.Command(&cobra.Command{
		Use:   "release WORKER",
		Short: "Release a worker of a generator that is gone for good",
		Long: `Release a worker before its reservation is over, because its generator is gone for
good. docs/snowflakes.md says what uniqueness then rests on.`,
		Example: `  leaf workers release 7           what the release rests on
  leaf workers release 7 --yes`,
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if worker, err = strconv.ParseInt(args[0], 10, 64); err != nil || worker < 0 {
				return fmt.Errorf("%q is not the number of a worker", args[0])
			}
			return nil
		},
	}, func(s *cli.Session, _ []string) error { return release(s, worker, yes) })
	cmd.Flags().BoolVar(&yes, "yes", false, "its generator is stopped and stays so: release it")
	return cmd
}

// release releases the worker, or says what that rests on.
func release(s *cli.Session, worker int64, yes bool) error {
	page, err := s.Admin.Workers(s.Context(), admin.WorkersRequest{From: worker, Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Workers) == 0 || page.Workers[0].Worker != worker {
		return fmt.Errorf("worker %d has no record: any generator may take it", worker)
	}
	w := page.Workers[0]
	node := cli.Safe(w.Node)
	switch stateOf(w) {
	case "running":
		return fmt.Errorf("worker %d is held by %s, which is running: stop it first "+
			"(one that was killed counts as running for up to 3 s, and can be released 10 s after its last report)",
			worker, node)
	case "free":
		return printReleased(s, w, "worker %d is free already, since %s\n")
	}
	if !yes {
		return cli.Usagef(`worker %[1]d is held by %[2]s, which is away: confirm with --yes.
Without this, worker %[1]d stays reserved until %[4]s. After it, another generator
may take the worker %[3]v from now, or %[3]v after its last report if that is later.
No ID comes twice if both of these are true:
- %[2]s is stopped, and nobody starts it again before %[4]s while it
  cannot reach the registry. If it can, it takes another worker.
- The clock of %[2]s was never more than %[3]v ahead of the other clocks while it
  held the worker.`, worker, node, snowflake.ReleaseMargin, cli.Time(w.ReservedUntil))
	}
	w, err = s.Admin.ReleaseWorker(s.Context(), admin.WorkerRelease{
		Worker: worker, Node: w.Node, ReservedUntil: w.ReservedUntil, Reported: w.Reported})
	if _, answered := errors.AsType[*bus.Error](err); err != nil && !answered {
		return fmt.Errorf("worker %d may have been released, `leaf workers` shows it: %w", worker, err)
	}
	if err != nil {
		return err
	}
	return printReleased(s, w, "worker %d is free from %s on\n")
}

// printReleased prints a worker that is free, or will be soon.
func printReleased(s *cli.Session, w admin.Worker, format string) error {
	return s.Print(w, func(to io.Writer) { fmt.Fprintf(to, format, w.Worker, cli.Time(w.ReservedUntil)) })
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
