package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/cli"
)

const (
	// settleFor is how long nothing may change until the installation counts as redundant. A replica whose
	// machine has just been killed is silent before that time is over.
	settleFor = replicaSilent + 2*time.Second
	// startsFor is how long nothing may change if an embedded server may be starting: longer than an election in a
	// cluster, which takes 4 to 9 s.
	startsFor = 15 * time.Second
	// waitForHelp is how long to wait for something that only a person can change, because they may be doing it now.
	waitForHelp = 30 * time.Second
	lookEvery   = 500 * time.Millisecond
)

const nodesLong = `Show the generators that are running or lost, and their state.

A generator is lost if the others do not hear it, and it did not report that it stops.
It is shown until it returns, or until its reservation is over.

With --wait-redundant it waits until any one machine may stop without an interruption,
for example before you restart it. It ends with exit status 0 when all of this has held
for 5s:
- each stream and bucket of Leafbus has a leader and at least three replicas, and all
  replicas are current;
- at least two generators can serve segments, and at least two snowflakes. For each of
  the two services they use different NATS servers;
- every generator that answers is ready.
While it waits it prints on stderr what is missing. It fails with exit status 1, and
says what to do:
- at once if a stream has too few replicas;
- after 30s if too few generators run, or after --wait if you give it;
- after --wait if something else is missing.
docs/cluster.md says what it cannot know.`

const nodesExample = `  leaf nodes
  leaf nodes --json
  leaf nodes --wait-redundant && ssh a systemctl restart leaf    machine a may stop
  leaf nodes --wait-redundant --wait 30m -s nats://a:4222,nats://b:4222`

// redundantWait is the flags of leaf nodes --wait-redundant, and what the wait goes by.
type redundantWait struct {
	most time.Duration // the whole wait
	help time.Duration // for what only a person can change
}

// redundancy is what --json prints.
type redundancy struct {
	Redundant bool           `json:"redundant"`
	Missing   []lack         `json:"missing"`
	Notes     []string       `json:"notes,omitempty"`
	Streams   []streamReport `json:"streams"`
	Nodes     []admin.State  `json:"nodes"`
}

type streamReport struct {
	Name     string          `json:"name"`
	Leader   string          `json:"leader"`
	Replicas []replicaReport `json:"replicas"` // without the leader
	Error    string          `json:"error,omitempty"`
}

type replicaReport struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	Offline bool   `json:"offline"`
	Lag     uint64 `json:"lag"`
	SeenMS  int64  `json:"seen_ms"` // before the answer
}

// addWaitRedundant adds --wait-redundant to the command nodes.
func addWaitRedundant(cmd *cobra.Command, f *cli.Client) *cobra.Command {
	var w redundantWait
	var wanted bool
	show := cmd.RunE
	fs := cmd.Flags()
	fs.BoolVar(&wanted, "wait-redundant", false, "wait until any one machine may stop without an interruption")
	fs.DurationVar(&w.most, "wait", 5*time.Minute, "longest wait of --wait-redundant")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch given := fs.Changed("wait"); {
		case given && !wanted:
			return cli.Usagef("--wait is for --wait-redundant: give both")
		case w.most <= 0:
			return cli.Usagef("--wait must be above zero, not %v", w.most)
		case given:
			w.help = w.most
		default:
			w.help = waitForHelp
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !wanted {
			return show(cmd, args)
		}
		return f.Run(cmd, func(s *cli.Session) error { return w.run(cmd, f, s.Admin, s.JS) })
	}
	return cmd
}

func (w redundantWait) run(cmd *cobra.Command, f *cli.Client, c *admin.Client, js jetstream.JetStream) error {
	shown := make(map[string]bool)
	last, lacks, err := w.await(cmd.Context(), func(ctx context.Context) (look, error) {
		ctx, cancel := context.WithTimeout(ctx, f.Timeout)
		defer cancel()
		l := lookAround(ctx, c, js)
		if js.Conn().IsClosed() {
			return l, errors.New("the connection to NATS was lost, and no server of --server answers")
		}
		return l, l.denied()
	}, func(lacks []lack) {
		now := make(map[string]bool)
		for _, line := range lines(lacks, waiting) {
			if now[line] = true; !shown[line] {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
		}
		shown = now
	})
	notes := last.notes()
	if err == nil {
		for _, note := range notes {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: "+cli.Safe(note))
		}
	}
	if f.JSON && last.streams != nil {
		printed := cli.PrintJSON(cmd.OutOrStdout(), redundancy{
			Redundant: err == nil, Missing: append([]lack{}, lacks...), Notes: notes,
			Streams: last.report(), Nodes: append([]admin.State{}, last.nodes...),
		})
		return errors.Join(err, printed)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "redundant: any one machine may stop. Generators: %s\n",
		cli.Safe(names(last.nodes)))
	return err
}

// await looks until the installation is redundant, and returns the last look and what it lacks. report is called
// after each look with what is missing.
func (w redundantWait) await(
	ctx context.Context, lookAround func(context.Context) (look, error), report func([]lack),
) (last look, lacks []lack, err error) {
	ends, end := context.WithTimeout(ctx, w.most)
	defer end()
	helpless := time.Now()  // since then something is missing that only a person can change
	var redundant time.Time // since then nothing is missing, and nothing has changed
	for shape := ""; ; {
		now, err := lookAround(ends)
		switch {
		case err != nil && ends.Err() == nil:
			return now, lacks, err
		case ends.Err() != nil && last.streams != nil: // the last look was cut short
			return last, lacks, w.gaveUp(ctx, last, lacks)
		}
		lacks = now.lacks(last)
		last = now
		at := time.Now()
		if s := now.shape(); len(lacks) > 0 {
			shape = ""
		} else if s != shape {
			redundant, shape = at, s
		}
		if !slices.ContainsFunc(lacks, func(l lack) bool { return l.Fix != "" }) {
			helpless = at
		}
		switch {
		case len(lacks) == 0 && at.Sub(redundant) >= now.settles():
			return last, nil, nil
		case slices.ContainsFunc(lacks, func(l lack) bool { return l.never }),
			at.Sub(helpless) >= w.help:
			return last, lacks, fmt.Errorf("the installation is not redundant, and waiting does not help:\n%s", help(lacks))
		}
		report(lacks)
		select {
		case <-ends.Done():
			return last, lacks, w.gaveUp(ctx, last, lacks)
		case <-time.After(lookEvery):
		}
	}
}

// gaveUp returns the error of a wait that was interrupted or took too long.
func (w redundantWait) gaveUp(ctx context.Context, last look, lacks []lack) error {
	why := "interrupted:"
	if ctx.Err() == nil {
		why = fmt.Sprintf("after %v", w.most)
	}
	if len(lacks) == 0 {
		return fmt.Errorf("%s nothing is missing, but not yet for %v: give a longer --wait", why, last.settles())
	}
	return fmt.Errorf("%s the installation is not redundant:\n%s", why, help(lacks))
}

// waiting is a line of progress.
func waiting(what string, l lack) string {
	return cli.Safe("waiting: " + what + ": " + l.Why)
}

// help says what is missing, and what to do.
func help(lacks []lack) string {
	return strings.Join(lines(lacks, func(what string, l lack) string {
		text := "  " + cli.Safe(what+": "+l.Why)
		if l.Fix != "" {
			text += "\n    " + l.Fix
		}
		return text
	}), "\n")
}

// report returns the streams that exist, or may exist.
func (l look) report() []streamReport {
	list := []streamReport{}
	for _, s := range l.streams {
		r := streamReport{Name: s.name, Replicas: []replicaReport{}}
		switch {
		case s.err != nil:
			r.Error = s.err.Error()
		case s.info == nil:
			continue
		case s.info.Cluster != nil:
			r.Leader = s.info.Cluster.Leader
			for _, p := range s.info.Cluster.Replicas {
				r.Replicas = append(r.Replicas, replicaReport{p.Name, p.Current, p.Offline, p.Lag, p.Active.Milliseconds()})
			}
		}
		list = append(list, r)
	}
	return list
}
