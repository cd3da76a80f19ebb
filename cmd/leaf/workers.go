package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/snowflake"
)

func newWorkersCmd() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "Show which generator holds which worker ID, and release one",
		Long: `Show which generator holds which worker ID of snowflakes, and until when.

A worker is running (its generator reports it), away (its generator is not heard, and
may come back), or free (its reservation is over, and any generator may take it).`,
		Example: `  leaf workers
  leaf workers --json
  leaf workers release 7    its generator is gone for good: do not wait for it`,
	}
	cmd.AddCommand(newWorkersReleaseCmd())
	return f.command(cmd, func(cmd *cobra.Command, c *admin.Client, _ []string) error {
		all, err := c.Workers(cmd.Context(), admin.WorkersRequest{})
		for page := all; err == nil && page.Next > 0; {
			page, err = c.Workers(cmd.Context(), admin.WorkersRequest{From: page.Next})
			all.Workers = append(all.Workers, page.Workers...)
		}
		if err != nil {
			return err
		}
		if f.json {
			all.Next = 0
			return printJSON(cmd.OutOrStdout(), all)
		}
		return printWorkers(cmd.OutOrStdout(), all.Workers...)
	})
}

func printWorkers(w io.Writer, workers ...admin.Worker) error {
	rows := make([][]string, len(workers))
	for i, w := range workers {
		rows[i] = []string{strconv.FormatInt(w.Worker, 10), w.Node, stateOf(w), timeOf(w.Acquired), timeOf(w.Reported), timeOf(w.ReservedUntil)}
	}
	return printTable(w, []string{"WORKER", "NODE", "STATE", "SINCE", "LAST REPORT", "RESERVED UNTIL"}, rows)
}

// stateOf is a word for what a worker is doing.
func stateOf(w admin.Worker) string {
	switch {
	case w.Running:
		return "running"
	case isFree(w):
		return "free"
	}
	return "away"
}

// isFree reports whether any generator may take the worker.
func isFree(w admin.Worker) bool { return !w.Running && time.Now().After(w.ReservedUntil) }

func newWorkersReleaseCmd() *cobra.Command {
	var f clientFlags
	var worker int64
	var yes bool
	cmd := &cobra.Command{
		Use:   "release WORKER",
		Short: "Release a worker of a generator that is gone for good",
		Long: fmt.Sprintf(`Release a worker before its reservation is over, because its generator is gone for
good. After %[1]v, or %[1]v after the last report of its generator if that is later,
any other generator may take it.

No ID comes twice if two things are true, which only you can know. The generator is
stopped, and is not started again. Its clock was never more than %[1]v ahead of the
other clocks. If it is started again and reaches the registry, it takes another worker.

The command is refused until the generator has not reported for 10s. On a terminal,
type the node's name to confirm. Without a terminal, give --yes.`, snowflake.ReleaseMargin),
		Example: `  leaf workers release 7
  leaf workers release 7 --yes --json`,
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if worker, err = strconv.ParseInt(args[0], 10, 64); err != nil || worker < 0 {
				return usagef("%q is not the number of a worker", args[0])
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "its generator is stopped and stays so: do not ask")
	return f.command(cmd, func(cmd *cobra.Command, c *admin.Client, _ []string) error { return f.release(cmd, c, worker, yes) })
}

// release shows the holder of the worker and what the release rests on. It asks for confirmation, and
// releases the worker.
func (f *clientFlags) release(cmd *cobra.Command, c *admin.Client, worker int64, yes bool) error {
	page, err := c.Workers(cmd.Context(), admin.WorkersRequest{From: worker, Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Workers) == 0 || page.Workers[0].Worker != worker {
		return fmt.Errorf("worker %d has no record: any generator may take it", worker)
	}
	w := page.Workers[0]
	node := strings.Map(printable, w.Node)
	switch {
	case w.Running:
		return fmt.Errorf("worker %d is held by %s, which is running: stop it first "+
			"(one that was killed counts as running for up to 3 s, and can be released 10 s after its last report)", worker, node)
	case isFree(w):
		return f.printFree(cmd, w, "worker %d is free already, since %s\n")
	}
	errs := cmd.ErrOrStderr()
	if err := printWorkers(errs, w); err != nil {
		return err
	}
	fmt.Fprintf(errs, `
Without this, worker %[1]d stays reserved until %[4]s. After it, another generator
may take the worker %[3]v from now, or %[3]v after its last report if that is later.
No ID comes twice if both of these are true:
- %[2]s is stopped, and nobody starts it again before %[4]s while it
  cannot reach the registry. If it can, it takes another worker.
- The clock of %[2]s was never more than %[3]v ahead of the other clocks while it
  held the worker.

`, worker, node, snowflake.ReleaseMargin, timeOf(w.ReservedUntil))
	if !yes {
		if err := confirm(cmd, fmt.Sprintf("Type the name of the node that is stopped, %s: ", node), w.Node); err != nil {
			return err
		}
	}
	w, err = c.ReleaseWorker(cmd.Context(), admin.WorkerRelease{Worker: worker, Node: w.Node, ReservedUntil: w.ReservedUntil, Reported: w.Reported})
	if _, answered := errors.AsType[*bus.Error](err); err != nil && !answered {
		return fmt.Errorf("worker %d may have been released, `leaf workers` shows it: %w", worker, err)
	}
	if err != nil {
		return err
	}
	return f.printFree(cmd, w, "worker %d is free from %s on\n")
}

// printFree prints a worker that is free, or will be soon.
func (f *clientFlags) printFree(cmd *cobra.Command, w admin.Worker, format string) error {
	if f.json {
		return printJSON(cmd.OutOrStdout(), w)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format, w.Worker, timeOf(w.ReservedUntil))
	return err
}

// confirm asks the person at the terminal to type a word. Without a terminal it returns a usage error.
func confirm(cmd *cobra.Command, question, word string) error {
	unasked := usagef("there is no terminal for your answer: confirm with --yes")
	in := cmd.InOrStdin()
	if !isTerminal(in) {
		return unasked
	}
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	fmt.Fprint(cmd.ErrOrStderr(), question)
	go func() { // a signal must not wait for the answer
		line, err := bufio.NewReader(in).ReadString('\n')
		answers <- answer{strings.TrimSpace(line), err}
	}()
	select {
	case a := <-answers:
		switch {
		case a.line == "" && errors.Is(a.err, io.EOF): // for example /dev/null
			return unasked
		case a.line != word:
			return fmt.Errorf("nothing was done: %s is not the name", strconv.Quote(cmp.Or(a.line, "nothing")))
		}
		return nil
	case <-cmd.Context().Done():
		return errors.New("nothing was done: interrupted")
	}
}
