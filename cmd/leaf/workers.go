package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/snowflake"
)

func newWorkersCmd() *cobra.Command {
	var a admin
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "Show who holds which worker ID, and release one",
		Long: `Show who holds which worker ID of snowflakes, and until when.

A worker is running (a generator says that it holds it), away (its generator is
not heard, and may come back), or free (its reservation is over: any generator
may take it). Where each data centre has a ZooKeeper of its own, these are the
workers of the one whose generator answers.`,
		Example: `  leaf workers
  leaf workers --json
  leaf workers release 7    its generator is gone for good: do not wait for it`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, func(ctx context.Context, c *bus.Client) error {
				return a.workers(ctx, cmd, c)
			})
		},
	}
	a.register(cmd)
	cmd.AddCommand(newWorkersReleaseCmd())
	return cmd
}

func (a *admin) workers(ctx context.Context, cmd *cobra.Command, c *bus.Client) error {
	all, err := c.Workers(ctx, bus.WorkersRequest{})
	for page := all; err == nil && page.Next > 0; {
		if page, err = c.Workers(ctx, bus.WorkersRequest{From: page.Next}); err == nil {
			all.Workers = append(all.Workers, page.Workers...)
		}
	}
	if err != nil {
		return err
	}
	if a.json {
		all.Next = 0
		return printJSON(cmd.OutOrStdout(), all)
	}
	return printWorkers(cmd.OutOrStdout(), all.Workers...)
}

func printWorkers(w io.Writer, workers ...bus.Worker) error {
	rows := make([][]string, len(workers))
	for i, w := range workers {
		state := "away"
		switch {
		case w.Running:
			state = "running"
		case isFree(w):
			state = "free"
		}
		rows[i] = []string{strconv.FormatInt(w.Worker, 10), w.Node, state, local(w.Acquired), local(w.Reported), local(w.ReservedUntil)}
	}
	return printTable(w, []string{"WORKER", "NODE", "STATE", "SINCE", "LAST REPORT", "RESERVED UNTIL"}, rows)
}

// isFree reports whether any generator may take the worker.
func isFree(w bus.Worker) bool { return !w.Running && time.Now().After(w.ReservedUntil) }

func newWorkersReleaseCmd() *cobra.Command {
	var a admin
	var yes bool
	cmd := &cobra.Command{
		Use:   "release WORKER",
		Short: "Give a worker free whose generator is gone for good",
		Long: fmt.Sprintf(`Give a worker free before its reservation is over, because the generator that
holds it is gone for good and another needs its number.

Any generator may then take it, from %[1]v after now, or after the last report of
its holder if that is later. That no ID comes twice then rests on what nobody but
you can know: that the holder is stopped and stays so, and that its clock was never
ahead of the others' by more than %[1]v. If the holder comes back all the same and
can reach the registry, it takes another worker.

It is refused while the holder runs or may run: until it has not reported for
10s. On a terminal the node's name is asked for; elsewhere --yes confirms.`, snowflake.ReleaseMargin),
		Example: `  leaf workers release 7
  leaf workers release 7 --yes --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			worker, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || worker < 0 {
				return usagef("%q is not the number of a worker", args[0])
			}
			return a.connected(cmd, func(ctx context.Context, nc *nats.Conn) error {
				return a.release(ctx, cmd, bus.NewClient(nc), worker, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "its generator is stopped and stays so: do not ask")
	annotate(cmd.Flags().Lookup("yes"), noteTyped, "true")
	a.register(cmd)
	return cmd
}

// release shows who holds the worker and what a release rests on, has it
// confirmed, and releases it.
func (a *admin) release(ctx context.Context, cmd *cobra.Command, c *bus.Client, worker int64, yes bool) error {
	attempt, cancel := context.WithTimeout(ctx, a.conn.timeout)
	page, err := c.Workers(attempt, bus.WorkersRequest{From: worker, Limit: 1})
	cancel()
	if err != nil {
		return err
	}
	if len(page.Workers) == 0 || page.Workers[0].Worker != worker {
		return noRecord(page.Registry, worker)
	}
	w := page.Workers[0]
	node := strings.Map(printable, w.Node)
	switch {
	case w.Running:
		return fmt.Errorf("worker %d is held by %s, which is running: stop it first "+
			"(one that was killed counts as running for up to 3 s, and can be released 10 s after its last report)", worker, node)
	case isFree(w):
		return a.freed(cmd, w, "worker %d is free already, since %s\n")
	}
	errs := cmd.ErrOrStderr()
	if err := printWorkers(errs, w); err != nil {
		return err
	}
	fmt.Fprintf(errs, `
Another generator may then take worker %[1]d from %[3]v after now on (or after its last
report, if that is later), in place of %[4]s. No ID comes twice as long as
- %[2]s is stopped, and nobody starts it again before %[4]s while
  it cannot reach the registry (where it can, it takes another worker);
- the clock of %[2]s was never ahead of the others' by more than %[3]v while it
  held the worker.

`, worker, node, snowflake.ReleaseMargin, local(w.ReservedUntil))
	if !yes {
		if err := confirm(cmd, fmt.Sprintf("Type the name of the node that is stopped, %s: ", node), w.Node); err != nil {
			return err
		}
	}
	ctx, cancel = context.WithTimeout(ctx, a.conn.timeout)
	defer cancel()
	w, err = c.ReleaseWorker(ctx, bus.WorkerRelease{Worker: worker, Node: w.Node, ReservedUntil: w.ReservedUntil, Reported: w.Reported})
	if _, answered := errors.AsType[*bus.Error](err); err != nil && !answered {
		return fmt.Errorf("it is not known whether worker %d was released, `leaf workers` shows it: %w", worker, err)
	}
	if err != nil {
		return err
	}
	return a.freed(cmd, w, "worker %d is free from %s on\n")
}

// noRecord is the error about a worker that is not among those of the registry.
func noRecord(registry string, worker int64) error {
	if registry == installation.KindZooKeeper {
		return fmt.Errorf("worker %d has no record in the ZooKeeper of the generator that answered: nobody holds it; "+
			"or, where data centres have a ZooKeeper each, it is in another's, whose generators did not answer now: try again", worker)
	}
	return fmt.Errorf("worker %d has no record: nobody holds it, so any generator may take it", worker)
}

// freed prints the worker that is free, or is soon.
func (a *admin) freed(cmd *cobra.Command, w bus.Worker, format string) error {
	if a.json {
		return printJSON(cmd.OutOrStdout(), w)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format, w.Worker, local(w.ReservedUntil))
	return err
}

// confirm asks whoever sits at the terminal to type a word. Where nobody does, it
// is a usage error.
func confirm(cmd *cobra.Command, question, word string) error {
	unasked := usagef("nobody can be asked here: --yes confirms what is said above")
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !isTerminal(in) {
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
		case a.line == "" && errors.Is(a.err, io.EOF): // say /dev/null
			return unasked
		case a.line != word:
			return fmt.Errorf("nothing was done: %s is not what was asked for", strconv.Quote(cmp.Or(a.line, "nothing")))
		}
		return nil
	case <-cmd.Context().Done():
		return errors.New("nothing was done: interrupted")
	}
}
